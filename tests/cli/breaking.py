"""Breaks a command at one system call: it fails once with an error of the system, or the program is killed there.
For break_*.py, which all take the same arguments:

    python3 break_VERB.py --ckpt CKPT --golden GOLDEN --io uring|threads [--every N] [--without CALL]
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# call -> the errors that it fails with
CALLS = {"openat": ["EIO", "ENOSPC"], "openat2": ["EIO", "ENOSYS"], "mkdir": ["ENOSPC"], "mkdirat": ["ENOSPC"], "fallocate": ["ENOSPC"],
         "write": ["EIO"], "pwrite64": ["EIO", "ENOSPC"], "pread64": ["EIO"], "io_uring_enter": ["EIO"],
         "ftruncate": ["EIO"], "fdatasync": ["EIO"], "fsync": ["EIO"], "renameat": ["EIO"], "renameat2": ["EIO"],
         "unlink": ["EIO"], "unlinkat": ["EIO"], "flock": ["EIO"], "getdents64": ["EIO"]}
SKIPPED = 77
ANSWERS = (0, 1, 2, 3, 10, 11, 12, 13, 14, 15, 16)  # of a command that met an obstacle


class Job:
    """A separate directory in which commands run. Jobs set up their initial state in __init__."""

    def __init__(self, options, directory):
        self.options, self.directory = options, pathlib.Path(directory)
        self.log, self.store = self.directory / "strace", self.directory / "store"
        self.golden = pathlib.Path(options.golden).absolute()

    @staticmethod
    def environment():
        # Its leak check uses ptrace, as strace does.
        return {**{k: v for k, v in os.environ.items() if not k.startswith("CKPT_")}, "ASAN_OPTIONS": "detect_leaks=0"}

    def run(self, *words, before=()):
        return subprocess.run([*before, self.options.ckpt, *words, "--io", self.options.io, "--threads", "1", "--no-mpi"], text=True,
                              capture_output=True, timeout=120, cwd=self.directory, env=self.environment())

    @staticmethod
    def tree(place):
        """The files below, None if the directory does not exist."""
        return {p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*") if p.is_file()} if place.is_dir() else None


def strace(log, call, how, when):
    """The command line that runs a command whose `when`-th call of a kind fails."""
    return ["strace", "-f", "-qq", "-o", log, "-e", f"trace={call}", "-e", f"inject={call}:{how}:when={when}"]


def injected(log):
    return log.exists() and ("INJECTED" in log.read_text(errors="replace"))


def check(condition, text, *runs):
    if not condition:
        for run in runs:
            print(run.args, run.returncode, run.stdout, run.stderr, sep="\n  ")
        sys.exit(f"FAILED: {text}")


def first_call(log, call, run):
    """The number of calls that the loader makes before the program begins: libraries that cannot be opened are not
    tested. `run` runs the command with a prefix."""
    if call not in ("openat", "pread64"):
        return 1
    run(["strace", "-f", "-qq", "-o", log, "-e", f"trace={call}", "-y"])
    count = 0
    lines = log.read_text(errors="replace").splitlines()
    main = lines[0].split()[0] if lines else ""
    for line in lines:
        if line.split()[0] != main:
            continue
        if not re.search(r"ld\.so|\.so(\.\d+)*[\">]", line):
            break
        count += 1
    return count + 1


def why_skipped(log, run):
    """Why calls cannot be broken on this machine; "" if they can."""
    if shutil.which("strace") is None:
        return "skipped: strace is missing"
    probe = run(strace(log, "mkdir", "error=EIO", 9999))
    if probe.returncode == 0:
        return ""
    return "skipped: strace may not trace here" if "ptrace" in probe.stderr else f"skipped: it does not work here: {probe.stderr}"


def was_broken(job, how, run):
    """Whether the call that was to be broken was made."""
    return run.returncode < 0 or run.returncode == 137 if how.startswith("signal") else injected(job.log)


def main(Job, probe, break_call, least):
    """Breaks all kinds of calls.

    probe (job, before) runs a command with a prefix break_call (job, number, call, hows) breaks the number-th call of
    one kind; returns how many
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--ckpt", required=True)
    parser.add_argument("--golden", required=True)
    parser.add_argument("--io", required=True)
    parser.add_argument("--every", type=int, default=1, help="only every so many calls of a kind, another one of each")
    parser.add_argument("--without", default="", help="a call that is left alone: a sanitizer makes it too, for its own ends")
    options = parser.parse_args()
    options.ckpt = os.path.abspath(options.ckpt)
    directory = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        job = Job(options, directory)
        reason = why_skipped(job.log, lambda before: probe(job, before))
        if reason:
            print(reason)
            return SKIPPED
        total = 0
        for number, (call, errors) in enumerate(CALLS.items()):
            if call == options.without:
                print(f"{call}: left alone")
                continue
            count = break_call(job, number, call, ["signal=KILL"] + [f"error={error}" for error in errors])
            total += count
            print(f"{call}: {count}", flush=True)
        check(total > least, f"only {total} were broken")
        print(f"{total} commands broken")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0
