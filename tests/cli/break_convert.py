"""Breaks a small `ckpt convert` at every system call that touches the disk: the call fails once with an error of the
system, or the program is killed there. Afterwards the target is the old one or the new one, complete; a failure is
reported once, with its exit code; nothing remains next to the target except a partial result with its name, which the
next run of the same conversion removes.
"""
import re
import shutil
import sys

import breaking
from breaking import check, first_call, strace, was_broken

CODES = {2, 10, 13, 14, 15, 16, 70}  # allowed exit codes of a failed conversion; 70 is an internal error


class Job(breaking.Job):
    def __init__(self, options, directory):
        super().__init__(options, directory)
        self.out = self.directory / "out"
        self.target = self.out / "new.ckpt"
        self.source = self.golden / "deepspeed/zero3_fp32_dp3_tied_tiny/ckpt"
        self.reset(None)
        check(self.convert().returncode == 0, "the new target")
        self.new = self.tree(self.target)
        self.reset(None)
        check(self.convert("--add-prefix", "old.").returncode == 0, "the old target")
        self.old = self.tree(self.target)
        check(self.old and self.new and self.old != self.new, "the old target is the new one")
        self.reset(None)

    def convert(self, *flags, before=()):
        return self.run("convert", "-v", self.source, self.target, *flags, before=before)

    def reset(self, old):
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        if old is not None:
            for path, data in old.items():
                place = self.target / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)

    def beside(self):
        return [p.name for p in self.out.iterdir() if p != self.target]


def break_at(job, call, how, when, old):
    """False if there was no such call."""
    new = job.new
    job.reset(old)
    job.log.unlink(missing_ok=True)
    flags = ["--overwrite"] if old is not None else []
    run = job.convert(*flags, before=strace(job.log, call, how, when))
    killed = how.startswith("signal")
    where = f"{how} at {call} number {when}, {'over an old target' if old is not None else 'no target'}"
    if not was_broken(job, how, run):
        check(run.returncode == 0 and job.tree(job.target) == new, f"{where}: nothing was broken, yet", run)
        return False
    tree = job.tree(job.target)
    check(tree in (old, new), f"{where}: the target is neither the old nor the new one", run)
    partial = [name for name in job.beside() if ".partial-" in name or name.endswith(".lock")]
    check(len(partial) == len(job.beside()), f"{where}: {job.beside()} stays", run)
    if not killed:
        told = re.findall(r"ckpt explain (E\d+)", run.stderr)
        if run.returncode in (0, 3):
            check(tree == new, f"{where}: success without the new target", run)
        else:
            check(run.returncode in CODES, f"{where}: exit {run.returncode}", run)
            check(run.returncode != 70, f"{where}: an internal error", run)
            check(len(set(told)) == 1, f"{where}: told {told}", run)
            check(tree == old or "E1602" in told[0] or call in ("fsync", "unlink", "unlinkat", "flock", "openat", "openat2",
                                                                "io_uring_enter", "getdents64", "write"),
                  f"{where}: an error although the new target stands", run)
    after = job.convert("--overwrite")
    check(after.returncode == 0, f"{where}: the next conversion", run, after)
    check(job.tree(job.target) == new, f"{where}: the next conversion makes something else", run, after)
    check(not job.beside(), f"{where}: {job.beside()} stays after the next conversion", run, after)
    return True


def break_call(job, number, call, hows):
    job.reset(None)
    begin = first_call(job.log, call, lambda before: job.convert(before=before))
    count, every = 0, job.options.every
    for old in (None, job.old):
        for how in hows:
            when = begin + (number + count) % every
            if when > begin and break_at(job, call, how, begin, old):
                count += 1
            while break_at(job, call, how, when, old):
                when, count = when + every, count + 1
    return count


if __name__ == "__main__":
    sys.exit(breaking.main(Job, lambda job, before: job.convert(before=before), break_call, least=20))
