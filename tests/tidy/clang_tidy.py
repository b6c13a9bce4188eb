"""Runs the short list of .clang-tidy over sources of a build whose commands name each file alone.

    python3 tests/tidy/clang_tidy.py --build build/dev [--of-day | --all]

Looks at the sources that changed, or whose own header did, in the working tree and in commits that the upstream branch lacks;
with --of-day also in the commits of the 24 hours before the newest one. Exit 0: no finding. 1: findings. 3: no clang-tidy."""
import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
DAY_S = 24 * 3600


def git(*words):
    run = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    return run.stdout.split("\n") if run.returncode == 0 else []


def changed(of_day):
    """Paths without their suffix, or None where git cannot tell."""
    newest = git("log", "-1", "--format=%ct")
    if not newest or not newest[0]:
        return None
    paths = git("diff", "--name-only", "HEAD") + git("ls-files", "-o", "--exclude-standard")
    paths += git("diff", "--name-only", "@{upstream}...HEAD")
    if of_day:
        paths += git("log", f"--since={int(newest[0]) - DAY_S}", "--name-only", "--format=", "HEAD")
    return {os.path.splitext(path)[0] for path in paths if path}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--of-day", action="store_true")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    tool = next((t for t in ("clang-tidy-14", "clang-tidy") if shutil.which(t)), None)
    if tool is None:
        print("clang-tidy: skipped: not installed")
        sys.exit(3)
    with open(os.path.join(options.build, "compile_commands.json"), encoding="utf-8") as file:
        sources = {os.path.realpath(os.path.join(c["directory"], c["file"])) for c in json.load(file)}
    sources = sorted(s for s in (os.path.relpath(s, ROOT) for s in sources) if s.startswith(("src/", "cli/", "helper/")))
    some = None if options.all else changed(options.of_day)
    if some is not None:
        sources = [s for s in sources if os.path.splitext(s)[0] in some]

    def look_at(path):
        # g++ names warnings that clang does not know.
        run = subprocess.run([tool, "--quiet", "-p", options.build, "--extra-arg=-Wno-unknown-warning-option", path],
                             capture_output=True, text=True, cwd=ROOT)
        return run.returncode, run.stdout.strip() or run.stderr.strip()

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = [text for code, text in pool.map(look_at, sources) if code != 0]
    for text in failed:
        print(text)
    print(f"clang-tidy: {len(sources)} files looked at{'' if options.all else ' (those that changed)'}, {len(failed)} with findings")
    sys.exit(1 if failed else 0)


main()
