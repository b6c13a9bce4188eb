"""Breaks a small `ckpt convert` at every system call that touches the disk: the call fails once with an error of the
system, or the program is killed there. Afterwards the target is the old one or the new one, whole; a failure is told once,
with its exit code; nothing is left beside the target but a partial result with its name, and the next conversion of the
same takes that away.

    python3 break_convert.py --ckpt CKPT --golden GOLDEN --io uring|threads [--every N] [--without CALL]
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from breaking import CALLS, SKIPPED, check, first_call, injected, strace, why_skipped

CODES = {2, 10, 13, 14, 15, 16, 70}  # what a failed conversion may answer; 70 is a broken promise of its own


class Job:
    def __init__(self, options, directory):
        self.options, self.directory = options, pathlib.Path(directory)
        self.out = self.directory / "out"
        self.out.mkdir()
        self.target = self.out / "new.ckpt"
        self.log = self.directory / "strace"
        self.source = pathlib.Path(options.golden).absolute() / "deepspeed/zero3_fp32_dp3_tied_tiny/ckpt"

    def convert(self, *flags, before=()):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CKPT_")}
        environment["ASAN_OPTIONS"] = "detect_leaks=0"  # its leak check uses ptrace, as strace does
        return subprocess.run([*before, self.options.ckpt, "convert", self.source, self.target, "--io", self.options.io,
                               "--threads", "1", "--no-mpi", *flags], text=True, capture_output=True, timeout=120,
                              cwd=self.out, env=environment)

    def reset(self, old):
        shutil.rmtree(self.out)
        self.out.mkdir()
        if old is not None:
            for path, data in old.items():
                place = self.target / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)

    def tree(self):
        if not self.target.exists():
            return None
        return {p.relative_to(self.target).as_posix(): p.read_bytes() for p in self.target.rglob("*") if p.is_file()}

    def beside(self):
        return [p.name for p in self.out.iterdir() if p != self.target]


def break_at(job, call, how, when, old, new):
    """False where there was no such call."""
    job.reset(old)
    job.log.unlink(missing_ok=True)
    flags = ["--overwrite"] if old is not None else []
    run = job.convert(*flags, before=strace(job.log, call, how, when))
    killed = how.startswith("signal")
    where = f"{how} at {call} number {when}, {'over an old target' if old is not None else 'no target'}"
    if (killed and run.returncode >= 0 and run.returncode != 137) or (not killed and not injected(job.log)):
        check(run.returncode == 0 and job.tree() == new, f"{where}: nothing was broken, yet", run)
        return False
    tree = job.tree()
    check(tree in (old, new), f"{where}: the target is neither the old nor the new one", run)
    partial = [name for name in job.beside() if ".partial-" in name or name.endswith(".lock")]
    check(len(partial) == len(job.beside()), f"{where}: {job.beside()} stays", run)
    if not killed:
        told = re.findall(r"CKPT-E\d+", run.stderr)
        if run.returncode in (0, 3):
            check(tree == new, f"{where}: success without the new target", run)
        else:
            check(run.returncode in CODES, f"{where}: exit {run.returncode}", run)
            check(run.returncode != 70, f"{where}: an internal error", run)
            check(len(set(told)) == 1, f"{where}: told {told}", run)
            check(tree == old or "E1602" in told[0] or call in ("fsync", "unlink", "unlinkat", "rmdir", "flock", "openat",
                                                                "io_uring_enter", "getdents64", "write"),
                  f"{where}: an error although the new target stands", run)
    after = job.convert("--overwrite")
    check(after.returncode == 0, f"{where}: the next conversion", run, after)
    check(job.tree() == new, f"{where}: the next conversion makes something else", run, after)
    check(not job.beside(), f"{where}: {job.beside()} stays after the next conversion", run, after)
    return True


def main():
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
        reason = why_skipped(job.log, lambda before: job.convert(before=before))
        if reason:
            print(reason)
            return SKIPPED
        new = job.tree()
        job.reset(None)
        check(job.convert("--add-prefix", "old.").returncode == 0, "the old target")
        old = job.tree()
        check(old and new and old != new, "the old target is the new one")
        total = 0
        for number, (call, errors) in enumerate(CALLS.items()):
            if call == options.without:
                print(f"{call}: left alone")
                continue
            job.reset(None)
            begin = first_call(job.log, call, lambda before: job.convert(before=before))
            count = 0
            for before in (None, old):
                for how in ["signal=KILL"] + [f"error={error}" for error in errors]:
                    when = begin + (number + count) % options.every
                    if when > begin and break_at(job, call, how, begin, before, new):
                        count += 1
                    while break_at(job, call, how, when, before, new):
                        when, count = when + options.every, count + 1
            total += count
            print(f"{call}: {count}")
        check(total > 20, f"only {total} were broken")
        print(f"{total} conversions broken")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
