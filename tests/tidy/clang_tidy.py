"""Runs the short list of .clang-tidy over sources, on all cores.

    python3 tests/tidy/clang_tidy.py --build build/dev [--batches build/release] [--base COMMIT | --all] [--seconds N]

Checks the sources that changed, or whose own header did, in the working tree and since the base commit: COMMIT, else
the
upstream branch. --build names each source alone in its compile commands; --batches is a build that compiles several as one:
if two or more of a batch changed, that batch is checked once, which costs little more than one file, because most of
the time goes into the same headers. --seconds: begins no further
file after that time, most recently changed files first, and names what it left out.
Exit 0: no finding. 1: findings. 3: no clang-tidy."""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
OURS = ("src/", "cli/", "helper/")
NAMED = 10  # of the files left out


def git(*words):
    run = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    return [line for line in run.stdout.split("\n") if line] if run.returncode == 0 else []


def changed(options):
    """Paths without their suffix, the most recently changed first; None if git does not know."""
    if not git("log", "-1", "--format=%H"):
        return None
    paths = git("diff", "--name-only", "HEAD") + git("ls-files", "-o", "--exclude-standard")
    base = options.base or "@{upstream}"
    still_other = set(git("diff", "--name-only", f"{base}...HEAD"))  # without reverted changes
    paths += [path for path in git("log", "--name-only", "--format=", f"{base}..HEAD") if path in still_other]
    return list(dict.fromkeys(os.path.splitext(path)[0] for path in paths))


def sources_of(build):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    return [os.path.realpath(os.path.join(c["directory"], c["file"])) for c in commands]


def members(batch):
    """The sources that a source made by CMake's unity build includes."""
    with open(batch, encoding="utf-8") as file:
        found = re.findall(r'#include "([^"]+\.cpp)"', file.read())
    return [os.path.relpath(os.path.realpath(os.path.join(os.path.dirname(batch), path)), ROOT) for path in found]


def work(options, wanted):
    """(build, file, sources in it) of each run; the order of `wanted`."""
    alone = {os.path.relpath(s, ROOT): s for s in sources_of(options.build)}
    alone = {path: s for path, s in alone.items() if path.startswith(OURS)}
    wanted = sorted(alone) if wanted is None else [p + ".cpp" for p in wanted if p + ".cpp" in alone]
    batch_of = {}
    if options.batches:
        for batch in (s for s in sources_of(options.batches) if "/Unity/unity_" in s):
            inside = members(batch)
            chosen = [path for path in inside if path in set(wanted)]
            if len(chosen) > 1:
                batch_of.update({path: (options.batches, batch, tuple(inside)) for path in chosen})
    return list(dict.fromkeys(batch_of.get(path, (options.build, alone[path], (path,))) for path in wanted))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--batches")
    parser.add_argument("--base")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    tool = next((t for t in ("clang-tidy-14", "clang-tidy") if shutil.which(t)), None)
    if tool is None:
        print("clang-tidy: skipped: not installed")
        sys.exit(3)
    runs = work(options, None if options.all else changed(options))
    end = time.monotonic() + options.seconds

    def look_at(run):
        build, file, _ = run
        if time.monotonic() > end:
            return None
        # g++ names warnings that clang does not know.
        done = subprocess.run([tool, "--quiet", "-p", build, "--extra-arg=-Wno-unknown-warning-option",
                               "--extra-arg=-Wno-error", file], capture_output=True, text=True, cwd=ROOT)
        return done.returncode, done.stdout.strip() or done.stderr.strip()

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = list(pool.map(look_at, runs))
    failed = [answer[1] for answer in answers if answer is not None and answer[0] != 0]
    for text in failed:
        print(text)
    seen = [path for run, answer in zip(runs, answers) if answer is not None for path in run[2]]
    left_out = [path for run, answer in zip(runs, answers) if answer is None for path in run[2]]
    if left_out:
        more = f" and {len(left_out) - NAMED} more" if len(left_out) > NAMED else ""
        print(f"clang-tidy: left out after {options.seconds:.0f} s: {', '.join(left_out[:NAMED])}{more}")
    print(f"clang-tidy: {len(seen)} files looked at{'' if options.all else ' (what changed, and its batches)'} in "
          f"{len(runs) - sum(a is None for a in answers)} runs, {len(left_out)} left out, {len(failed)} with findings")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
