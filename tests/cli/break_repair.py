"""Breaks `ckpt repair --apply` at every system call that touches the disk: the call fails once with an error of the system, or
the program is killed there. Afterwards no manifest is anything but lost or what it was, the text that was right is untouched,
and the same command again mends the rest.

    python3 break_repair.py --ckpt CKPT --golden GOLDEN --io uring|threads [--every N] [--without CALL]
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from breaking import CALLS, SKIPPED, check, first_call, injected, strace, why_skipped

REPAIR = ("repair", "store", "--apply")


class Job:
    def __init__(self, options, directory):
        self.options, self.directory = options, pathlib.Path(directory)
        self.log, self.store, self.one = self.directory / "strace", self.directory / "store", self.directory / "one"
        made = self.run("convert", pathlib.Path(options.golden).absolute() / "safetensors/single/ckpt", self.one, "--to", "ckpt")
        check(made.returncode == 0, "a checkpoint", made)
        self.whole = self.tree(self.one)

    def run(self, *words, before=()):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CKPT_")}
        environment["ASAN_OPTIONS"] = "detect_leaks=0"  # its leak check uses ptrace, as strace does
        return subprocess.run([*before, self.options.ckpt, *words, "--io", self.options.io, "--threads", "1", "--no-mpi"], text=True,
                              capture_output=True, timeout=120, cwd=self.directory, env=environment)

    @staticmethod
    def tree(place):
        return {p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*")
                if p.is_file() and "marks" not in p.relative_to(place).parts}

    def checkpoint(self, step):
        return self.store / "r" / f"step-{step:09}.g{step}"

    def reset(self):
        shutil.rmtree(self.store, ignore_errors=True)
        for step in (1, 2, 3):
            shutil.copytree(self.one, self.checkpoint(step))
        (self.checkpoint(1) / "manifest.json").unlink()
        (self.checkpoint(2) / "index/manifest.json").write_bytes(b"{ torn")
        self.partial = self.store / "r" / ("step-000000009.partial-" + "0123456789abcdef" * 2)
        (self.partial / "shards").mkdir(parents=True)
        (self.partial / "shards/x").write_bytes(b"x")
        self.log.unlink(missing_ok=True)

    def is_mended(self):
        return all(self.tree(self.checkpoint(step)) == self.whole for step in (1, 2, 3)) and not self.partial.exists()


def check_safe(job, where, run):
    for step, lost in ((1, "manifest.json"), (2, "index/manifest.json"), (3, None)):
        now = {k: v for k, v in job.tree(job.checkpoint(step)).items() if not k.endswith(".tmp")}
        for name, value in job.whole.items():
            check(now.get(name) in ((None, b"{ torn", value) if name == lost else (value,)), f"{where}: {step}: {name}", run)
    if (job.checkpoint(1) / "manifest.json").exists():
        check(list((job.checkpoint(1) / "marks").glob("note-*.json")), f"{where}: restored, and nothing says so", run)


def break_at(job, call, how, when):
    """False where there was no such call."""
    job.reset()
    run = job.run(*REPAIR, before=strace(job.log, call, how, when))
    killed, where = how.startswith("signal"), f"{how} at {call} number {when}"
    if (killed and run.returncode >= 0 and run.returncode != 137) or (not killed and not injected(job.log)):
        check(run.returncode == 0 and job.is_mended(), f"{where}: nothing was broken, yet", run)
        return False
    check_safe(job, where, run)
    check(killed or run.returncode in (0, 1, 2, 3, 10, 11, 12, 13, 14, 15, 16), f"{where}: exit {run.returncode}", run)
    after = job.run(*REPAIR)
    check(after.returncode == 0 and job.is_mended(), f"{where}: the next run does not finish it", run, after)
    left = [p for p in job.store.rglob("*.tmp") if "marks" not in p.parts]
    check(not left, f"{where}: a temporary file stays", run, after)
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
        job.reset()
        reason = why_skipped(job.log, lambda before: job.run(*REPAIR, before=before))
        if reason:
            print(reason)
            return SKIPPED
        total = 0
        for number, (call, errors) in enumerate(CALLS.items()):
            if call == options.without:
                print(f"{call}: left alone")
                continue
            job.reset()
            begin, count = first_call(job.log, call, lambda before: job.run(*REPAIR, before=before)), 0
            for how in ["signal=KILL"] + [f"error={error}" for error in errors]:
                when = begin + (number + count) % min(options.every, 4)
                while break_at(job, call, how, when):
                    when, count = when + options.every, count + 1
            total += count
            print(f"{call}: {count}")
        check(total > 10, f"only {total} were broken")
        print(f"{total} commands broken")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
