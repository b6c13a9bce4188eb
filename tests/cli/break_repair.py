"""Breaks `ckpt repair --apply`, and the salvage of `ckpt repair --out`, at every system call that touches the disk: the call fails once with an error of the system, or
the program is killed there. Afterwards every manifest is lost or unchanged, the good copy is unchanged, and the same
command again repairs the rest; a salvage is complete or absent, and its source is unchanged.
"""
import shutil
import sys

import breaking
from breaking import ANSWERS, check, first_call, strace, was_broken

REPAIR = ("repair", "store", "--apply")
SALVAGE = ("repair", "bad", "--out", "out")


class Job(breaking.Job):
    def __init__(self, options, directory):
        super().__init__(options, directory)
        self.one = self.directory / "one"
        made = self.run("convert", self.golden / "safetensors/single/ckpt", self.one, "--to", "ckpt")
        check(made.returncode == 0, "a checkpoint", made)
        self.whole = self.tree(self.one)
        self.bad, self.out = self.directory / "bad", self.directory / "out"
        made = self.run("convert", self.golden / "deepspeed/zero1_fp16_dp2/ckpt", self.bad, "--to", "ckpt")
        check(made.returncode == 0, "a checkpoint to be damaged", made)
        (self.bad / "manifest.json").unlink()
        shard = next(self.bad.glob("shards/optim/*"))
        shard.write_bytes(shard.read_bytes()[:-1] + b"\x55")
        self.damaged = self.tree(self.bad)
        made = self.run(*SALVAGE)
        check(made.returncode == 3, "a salvage", made)
        self.salvaged = self.tree(self.out)
        self.reset()

    @staticmethod
    def tree(place):
        """Without its later marks."""
        files = breaking.Job.tree(place)
        return files and {name: data for name, data in files.items() if not name.startswith("marks/")}

    def checkpoint(self, step):
        return self.store / "r" / f"step-{step:09}.g{step}"

    def reset(self):
        shutil.rmtree(self.store, ignore_errors=True)
        for step in (1, 2, 3):
            shutil.copytree(self.one, self.checkpoint(step))
        (self.checkpoint(1) / "manifest.json").unlink()
        (self.checkpoint(2) / "index/manifest.json").write_bytes(b"{ torn")
        self.partial = self.store / "r" / ("step-000000009.partial-" + "0123456789abcdef" * 2)
        (self.partial / "shards/weights").mkdir(parents=True)
        (self.partial / "shards/weights/00000-00000.safetensors").write_bytes(b"x")
        shutil.rmtree(self.out, ignore_errors=True)
        for left in self.directory.glob("out.*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
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
    """False if there was no such call."""
    job.reset()
    run = job.run(*REPAIR, before=strace(job.log, call, how, when))
    killed, where = how.startswith("signal"), f"{how} at {call} number {when}"
    if not was_broken(job, how, run):
        check(run.returncode == 0 and job.is_mended(), f"{where}: nothing was broken, yet", run)
        return False
    check_safe(job, where, run)
    check(killed or run.returncode in ANSWERS, f"{where}: exit {run.returncode}", run)
    after = job.run(*REPAIR)
    check(after.returncode == 0 and job.is_mended(), f"{where}: the next run does not finish it", run, after)
    left = [p for p in job.store.rglob("*.tmp") if "marks" not in p.parts]
    check(not left, f"{where}: a temporary file stays", run, after)
    return True


def break_salvage(job, call, how, when):
    """False if there was no such call."""
    job.reset()
    run = job.run(*SALVAGE, before=strace(job.log, call, how, when))
    killed, where = how.startswith("signal"), f"salvage: {how} at {call} number {when}"
    if not was_broken(job, how, run):
        check(run.returncode == 3 and job.tree(job.out) == job.salvaged, f"{where}: nothing was broken, yet", run)
        return False
    check(killed or run.returncode in ANSWERS, f"{where}: exit {run.returncode}", run)
    check(job.tree(job.bad) == job.damaged, f"{where}: the damaged one was changed", run)
    check(job.tree(job.out) in (None, job.salvaged), f"{where}: half of it under its name", run)
    check(run.returncode != 3 or job.out.is_dir(), f"{where}: success without a result", run)
    after = job.run(*SALVAGE)
    check(after.returncode in (2, 3) and job.tree(job.out) == job.salvaged, f"{where}: the next run does not make it", run, after)
    check(not list(job.directory.glob("out.*")), f"{where}: something stays beside it", run, after)
    return True


def break_call(job, number, call, hows):
    count = 0
    for words, breaks in ((REPAIR, break_at), (SALVAGE, break_salvage)):
        job.reset()
        begin = first_call(job.log, call, lambda before, words=words: job.run(*words, before=before))
        for how in hows:
            when = begin + (number + count) % min(job.options.every, 4)
            while breaks(job, call, how, when):
                when, count = when + job.options.every, count + 1
    return count


if __name__ == "__main__":
    sys.exit(breaking.main(Job, lambda job, before: job.run(*REPAIR, before=before), break_call, least=10))
