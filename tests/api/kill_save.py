"""Kills a small save at every system call that changes the disk, and checks the result: the previous checkpoint or the
new one is complete; the new one if it was reported as durable; and the next save works and removes leftovers. With
--tiers the save goes to a
local directory first: the same holds of the run's directory alone and what was drained.

    python3 kill_save.py --program save_steps --io uring|threads [--every N] [--tiers]
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CALLS = ["mkdir", "openat", "fallocate", "write", "pwrite64", "io_uring_enter", "ftruncate", "fdatasync", "fsync",
         "renameat2", "unlink", "rmdir", "flock"]
# A step later a library or the C runtime makes no more of them: the save is over.
SKIPPED = 77


class Job:
    def __init__(self, program, io, directory, tiers):
        self.program, self.io, self.run = program, io, pathlib.Path(directory) / "run"
        self.local = pathlib.Path(directory) / "nvme" / "run" if tiers else None

    def start(self, *words, before=(), nearer=True):
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # its leak check uses ptrace, as strace does
        local = [self.local] if self.local and nearer else []
        return subprocess.run([*before, self.program, words[0], self.run, *words[1:], self.io, *local], text=True,
                              capture_output=True, timeout=120, env=environment)

    def directories(self):
        return [self.run] + ([self.local] if self.local else [])

    def strace(self, call, when):
        return ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                f"inject={call}:signal=KILL:when={when}"]


def check(condition, text, *runs):
    if not condition:
        for run in runs:
            print(run.args, run.returncode, run.stdout, run.stderr, sep="\n  ")
        sys.exit(f"FAILED: {text}")


def kill_at(job, call, when):
    """False if the save ended before its `when`-th such call."""
    for directory in job.directories():
        shutil.rmtree(directory, ignore_errors=True)
    first = job.start("save", "1", "1")
    check(first.returncode == 0, "the first save", first)
    killed = job.start("save", "2", "2", before=job.strace(call, when))
    where = f"killed at {call} number {when}"
    if job.local:
        alone = job.start("load", nearer=False)
        found = alone.stdout.strip() if alone.returncode == 0 else "nothing"
        check(found == "2" or (found == "1" and "drained 2" not in killed.stdout),
              f"{where}: {found} is found in the run's directory alone", killed, alone)
    loaded = job.start("load")
    check(loaded.returncode == 0, f"{where}: nothing can be loaded", killed, loaded)
    step = int(loaded.stdout)
    check(step == 2 or (step == 1 and "durable 2" not in killed.stdout), f"{where}: step {step} is found", killed, loaded)
    after = job.start("save", "3", "3")
    check(after.returncode == 0 and "durable 3" in after.stdout, f"{where}: the next save", killed, after)
    left = [p.name for directory in job.directories() for p in directory.iterdir() if ".partial-" in p.name]
    check(not left, f"{where}: {left} stays", killed, after)
    return killed.returncode != 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--io", required=True)
    parser.add_argument("--tiers", action="store_true")
    parser.add_argument("--every", type=int, default=1, help="only every so many calls of a kind")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        job = Job(options.program, options.io, directory, options.tiers)
        probe = job.start("save", "1", "1", before=job.strace("mkdir", 9999)) if shutil.which("strace") else None
        if probe is None or probe.returncode != 0:
            print("skipped: strace is missing, or may not trace here" if probe is None or "ptrace" in probe.stderr
                  else f"skipped: {options.io} does not work here: {probe.stderr}")
            return SKIPPED
        total = 0
        for call in CALLS:
            when, kills = 1, 0
            while kill_at(job, call, when):
                when, kills = when + options.every, kills + 1
            total += kills
            print(f"{call}: {kills} kills")
        check(total > 30, f"only {total} kills")
        print(f"{total} kills")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
