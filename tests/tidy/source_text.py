"""Input of the tidy tests: the project's files, and C++ text without comments and strings."""
import argparse
import os
import re
import subprocess
import sys

CPP = (".cpp", ".hpp", ".h", ".c")


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True, help="root of the source tree")
    parser.add_argument("--ckpt", help="the built command")
    parser.add_argument("--cxx", default="c++", help="the compiler")
    return parser.parse_args()


def project_files(root):
    """Paths relative to root of every file that belongs to the project: tracked, or new and not ignored."""
    try:
        listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], check=True,
                                capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):  # a release tarball has no .git
        listed = []
        for folder, folders, names in os.walk(root):
            folders[:] = [f for f in folders if not f.startswith((".", "build"))]
            listed += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    data = ("tests/golden/", "tests/fuzz/corpus/", "tests/fuzz/found/", "examples/deepspeed-zero3/")
    return sorted(f for f in set(listed) if not f.startswith(data) and os.path.isfile(os.path.join(root, f)))


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\s\\]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
    re.S)


def code_only(text, keep_strings=False):
    """C++ text with comments blanked, and string and character literals too unless kept; line numbers stay."""
    def blank(match):
        token = match.group(0)
        if keep_strings and not token.startswith(("//", "/*")):
            return token
        return re.sub(r"[^\n]", " ", token)
    return _TOKEN.sub(blank, text)


def verdict(findings, looked_at):
    """Prints one finding per line and ends the program: 0 if there are none, 1 if there are some or nothing was
    checked."""
    for finding in findings:
        print(finding)
    print(f"{looked_at} looked at, {len(findings)} findings")
    sys.exit(1 if findings or looked_at == 0 else 0)
