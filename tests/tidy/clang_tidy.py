"""Runs the short list of .clang-tidy over the sources of a build, files changed last first, within a time limit.

    python3 tests/tidy/clang_tidy.py --build build/release [--limit SECONDS]

Exit 0: no finding in the files looked at; what the limit left out is said. 1: findings. 3: no clang-tidy here."""
import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))


def last_change(path):
    """Seconds of the file's last commit, or its own time where it has uncommitted changes or there is no git."""
    def git(*words):
        run = subprocess.run(["git", "-C", ROOT, *words, "--", path], capture_output=True, text=True)
        return run.stdout.strip() if run.returncode == 0 else ""
    return float(os.path.getmtime(path) if git("status", "--porcelain") else git("log", "-1", "--format=%ct") or 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--limit", type=float, default=200)
    options = parser.parse_args()
    tool = next((t for t in ("clang-tidy-14", "clang-tidy") if shutil.which(t)), None)
    if tool is None:
        print("clang-tidy: skipped: not installed")
        sys.exit(3)
    with open(os.path.join(options.build, "compile_commands.json"), encoding="utf-8") as file:
        sources = {os.path.realpath(os.path.join(c["directory"], c["file"])) for c in json.load(file)}
    sources = sorted((s for s in sources if os.path.relpath(s, ROOT).startswith(("src/", "cli/", "helper/"))),
                     key=last_change, reverse=True)
    end = time.monotonic() + options.limit

    def look_at(path):
        if time.monotonic() > end:
            return None
        # g++ names warnings that clang does not know.
        run = subprocess.run([tool, "--quiet", "-p", options.build, "--extra-arg=-Wno-unknown-warning-option", path],
                             capture_output=True, text=True)
        return run.returncode, run.stdout.strip() or run.stderr.strip()

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(look_at, sources))
    failed = [text for text in (r[1] for r in results if r and r[0] != 0)]
    left_out = sum(r is None for r in results)
    for text in failed:
        print(text)
    print(f"clang-tidy: {len(sources) - left_out} of {len(sources)} files looked at, {len(failed)} with findings"
          + (f", {left_out} left out by the limit of {options.limit:.0f} s" if left_out else ""))
    sys.exit(1 if failed or left_out == len(sources) else 0)


main()
