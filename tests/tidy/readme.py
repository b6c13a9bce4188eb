"""Commands and linked files in the documents exist, and C++ examples in them are compiled."""
import os
import re
import subprocess

from source_text import arguments, project_files, read, verdict


def help_text(ckpt, verb=None):
    run = subprocess.run([ckpt, *([verb] if verb else []), "--help"], capture_output=True, text=True, timeout=20)
    return run.stdout if run.returncode == 0 else ""


def shown_commands(text):
    """Lines of fenced blocks that begin with a program of ours, comments and prompts removed."""
    for block in re.findall(r"```(?:sh|bash|text)?\n(.*?)```", text, re.S):
        lines = block.replace("\\\n", " ").splitlines()
        prompted = [line for line in lines if line.startswith("$ ")]  # the other lines are output
        for line in prompted or lines:
            line = re.sub(r"\s#.*", "", line.strip()).removeprefix("$ ")
            if line:
                yield line


def lines_of(code):
    return [line.strip() for line in code.strip().splitlines()]


def is_excerpt(lines, of):
    return any(of[i:i + len(lines)] == lines for i in range(len(of)))


def main():
    options = arguments()
    files = project_files(options.root)
    documents = [f for f in files if f.endswith(".md")]
    examples = [lines_of(read(options.root, f)) for f in files if f.startswith("examples/") and f.endswith(".cpp")]
    findings, shown, verbs = [], 0, {}
    for path in documents:
        text = read(options.root, path)
        folder = os.path.dirname(path)
        for target in re.findall(r"\]\(([^)#\s]+)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
            if not re.match(r"[a-z]+:", target) and not os.path.exists(os.path.join(options.root, folder, target)):
                findings.append(f"{path}: links to {target}, which is not there")
        if path != "README.md" and not path.startswith("docs/"):
            continue
        for block in re.findall(r"```cpp\n(.*?)```", text, re.S):
            shown += 1
            if not any(is_excerpt(lines_of(block), example) for example in examples):
                findings.append(f"{path}: this is in no file of examples/: {block[:200]}")
        for line in shown_commands(text):
            words = line.split()
            if words[0].startswith(("./", "tests/")):
                shown += 1
                if not os.access(os.path.join(options.root, words[0]), os.X_OK):
                    findings.append(f"{path}: {words[0]} is no program: {line}")
            if "ckpt" not in [os.path.basename(w) for w in words[:5]]:
                continue
            shown += 1
            rest = words[next(i for i, w in enumerate(words) if os.path.basename(w) == "ckpt") + 1:]
            if not rest or rest[0].startswith("-"):
                continue
            verb = rest[0]
            if verb not in verbs:
                verbs[verb] = help_text(options.ckpt, verb)
            if not verbs[verb]:
                findings.append(f"{path}: ckpt has no command {verb}: {line}")
            for flag in re.findall(r"(?<!\S)--?[a-z][\w-]*", " ".join(rest[1:])):
                if verbs[verb] and not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", verbs[verb]):
                    findings.append(f"{path}: ckpt {verb} has no {flag}: {line}")
    verdict(findings, shown)


main()
