"""Every source belongs to a target, and every file of tests is built or run."""
import os
import re

from source_text import arguments, project_files, read, verdict


def without_comments(cmake):
    return re.sub(r"#[^\n]*", "", cmake)


def main():
    options = arguments()
    files = project_files(options.root)
    lists = {os.path.dirname(f): without_comments(read(options.root, f)) for f in files
             if os.path.basename(f) == "CMakeLists.txt"}
    findings, looked_at = [], 0
    for path in files:
        if not path.endswith((".cpp", ".c")):
            continue
        looked_at += 1
        named, folder = False, os.path.dirname(path)
        while True:  # the file's own CMakeLists.txt, or one above it
            words = re.split(r"[\s()\"]+", lists.get(folder, ""))
            name = os.path.relpath(path, folder or ".")
            fuzz = re.fullmatch(r"tests/fuzz/(\w+)_fuzz\.cpp", path)
            if name in words or (fuzz and re.search(rf"ckpt_fuzz\({fuzz.group(1)}\b", lists.get(folder, ""))):
                named = True
            if not folder:
                break
            folder = os.path.dirname(folder)
        if not named:
            findings.append(f"{path}: in no target")
    # A folder with a list that no other list adds is never built.
    for folder in lists:
        if folder and not any(re.search(rf"add_subdirectory\(\s*{re.escape(os.path.relpath(folder, parent or '.'))}\s*\)", text)
                              for parent, text in lists.items() if folder != parent):
            findings.append(f"{folder}/CMakeLists.txt: no add_subdirectory names it")
    for path in files:
        if re.search(r"(^|/)(test_\w+|\w+_test)\.py$", path) and not path.startswith(("tests/interop/", "bench/")):
            findings.append(f"{path}: no runner looks here")
        if path.startswith("tests/fuzz/") and path.endswith("_fuzz.cpp"):
            corpus = os.path.join(options.root, "tests/fuzz/corpus", os.path.basename(path)[:-len("_fuzz.cpp")])
            if not os.path.isdir(corpus) or not os.listdir(corpus):
                findings.append(f"{path}: no corpus")
    verdict(findings, looked_at)


main()
