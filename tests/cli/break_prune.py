"""Breaks `ckpt prune` and `ckpt undelete` at every system call that touches the disk: the call fails once with an error of
the system, or the program is killed there. Afterwards kept checkpoints are unchanged; every other one is complete in
its run or in the trash, or partly removed there, never with the file that would make it a checkpoint; a checkpoint
reduced to weights is either complete or a complete weights-only one; and the same command again finishes the work. It
is also stopped at each call while the checkpoint that it deletes is pinned: a confirmed pin holds.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import breaking
from breaking import ANSWERS, check, first_call, strace, was_broken

STEPS = (1, 2, 3, 4)


class Job(breaking.Job):
    def __init__(self, options, directory):
        super().__init__(options, directory)
        self.sources = {}
        for source in {deed.source for deed in DEEDS}:
            target = self.directory / source.replace("/", "-")
            made = self.run("convert", self.golden / source / "ckpt", target, "--to", "ckpt")
            check(made.returncode == 0, "a checkpoint", made)
            self.sources[source] = (target, self.tree(target))
        self.reset(DEEDS[0])

    def live(self, step):
        return self.store / "r" / f"step-{step:09}.g{step}"

    def trashed(self, step):
        """A step, or the end of a name."""
        return self.store / ".ckpt/trash/r" / f"step-{step if isinstance(step, str) else f'{step:09}.g{step}'}"

    def reset(self, deed):
        shutil.rmtree(self.store, ignore_errors=True)
        one, self.whole = self.sources[deed.source]
        for step in STEPS:
            shutil.copytree(one, self.live(step))
        if deed.policy:
            (self.store / "ckpt.toml").write_text(deed.policy)


class Deed:
    """A command on a store of STEPS that affects `gone`, with the required state before it and the state after it."""
    source, policy, gone = "safetensors/single", "", (1, 2)

    def __init__(self, name, words, prepare, end, may_be_half=False):
        self.name, self.words, self.prepare, self.end, self.may_be_half = name, words, prepare, end, may_be_half

    def check_gone(self, job, step, where, *runs):
        live, trashed = job.tree(job.live(step)), job.tree(job.trashed(step))
        check(live in (None, job.whole), f"{where}: half of step {step} in its run", *runs)
        if live == job.whole or trashed == job.whole:
            return
        check(self.may_be_half, f"{where}: step {step} is lost", *runs)
        check(not trashed or "manifest.json" not in trashed, f"{where}: half of step {step} looks whole", *runs)


class Demotion(Deed):
    """Checkpoints are reduced to their weights, or got their optimizers back."""
    source, gone = "deepspeed/zero1_fp16_dp2", (1, 2, 3)
    policy = ('[trash]\npurge_early_when_free_below = "0%"\n'
              '[[rule]]\nruns = "*"\nkeep = { last = 4 }\ndrop_optimizer_after = "1s"\n')
    manifests = ("manifest.json", "index/manifest.json")

    @classmethod
    def parts(cls, files):
        """Optimizer state, and everything else except the manifests."""
        optim = {name.split("shards/optim/")[-1]: data for name, data in files.items() if name.startswith("shards/optim/")}
        manifests = [*cls.manifests, *(name + ".tmp" for name in cls.manifests)]  # the next process removes those
        rest = {name: data for name, data in files.items() if not name.startswith("shards/optim/") and name not in manifests}
        return optim, rest

    def check_gone(self, job, step, where, *runs):
        live, optim = job.tree(job.live(step)), self.parts(job.whole)[0]
        check(live is not None and self.parts(live)[1] == self.parts(job.whole)[1], f"{where}: step {step} lost more than that", *runs)
        dropped = json.loads(live["manifest.json"]).get("dropped", [])
        check(dropped in ([], ["optim"]) and (dropped or self.parts(live)[0] == optim), f"{where}: step {step} is neither", *runs)
        check(optim in (self.parts(live)[0], job.tree(job.trashed(f"{step:09}.g{step}.optim"))), f"{where}: step {step}: lost", *runs)
        copy = job.directory / "copy"  # outside of the store: the result is not recorded, which would protect the checkpoint
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(job.live(step), copy)
        verified = job.run("verify", copy)
        check(verified.returncode == 0, f"{where}: step {step} does not verify", verified, *runs)


def is_demoted(job, step):
    return not (job.live(step) / "shards/optim").exists() and job.trashed(f"{step:09}.g{step}.optim").is_dir()


PRUNE = ("prune", "--store", "store", "--keep-last", "2", "--apply", "-y", "--purge-early-below", "0")
DEMOTE = ("prune", "--store", "store", "--apply", "-y")
DEEDS = [
    Deed("put", PRUNE, (), lambda job: all(job.tree(job.trashed(n)) == job.whole and not job.live(n).exists() for n in Deed.gone)),
    Deed("purge", (*PRUNE, "--grace", "0"), (), lambda job: not any(job.trashed(n).exists() or job.live(n).exists() for n in Deed.gone),
         may_be_half=True),
    Deed("undelete", ("undelete", "r@1", "--store", "store"), PRUNE, lambda job: job.tree(job.live(1)) == job.whole),
    Demotion("demote", DEMOTE, (), lambda job: all(is_demoted(job, n) for n in Demotion.gone)),
    Demotion("restore", ("undelete", "r@1", "--store", "store"), DEMOTE, lambda job: (job.live(1) / "shards/optim").is_dir()),
]


def check_safe(job, deed, where, *runs):
    for step in STEPS:
        if step in deed.gone:
            deed.check_gone(job, step, where, *runs)
        else:
            check(job.tree(job.live(step)) == job.whole, f"{where}: step {step}, which is kept, is not what it was", *runs)


def break_at(job, deed, call, how, when):
    """False if there was no such call."""
    job.reset(deed)
    if deed.prepare:
        check(job.run(*deed.prepare).returncode == 0, f"{deed.name}: what comes before")
    job.log.unlink(missing_ok=True)
    run = job.run(*deed.words, before=strace(job.log, call, how, when))
    killed = how.startswith("signal")
    where = f"{deed.name}: {how} at {call} number {when}"
    if not was_broken(job, how, run):
        check(run.returncode == 0 and deed.end(job), f"{where}: nothing was broken, yet", run)
        return False
    check_safe(job, deed, where, run)
    check(killed or run.returncode in ANSWERS, f"{where}: exit {run.returncode}", run)
    after = job.run(*deed.words)
    finished = after.returncode == 0 or (deed.words[0] == "undelete" and after.returncode == 10)  # it was already done
    check(finished and deed.end(job), f"{where}: the next run does not finish it", run, after)
    check_safe(job, deed, where + ", and again", run, after)
    idle = job.run(*PRUNE[:4], "4", *PRUNE[5:])
    check(idle.returncode == 0 and not list(job.store.rglob("*.tmp")), f"{where}: a temporary file stays", run, after, idle)
    check_safe(job, deed, where + ", and after another prune", run, after, idle)
    return True


def stopped(log, pid):
    """The process that strace runs, once it is stopped by the signal; else None. Its state does not show that, because
    strace stops it at every call."""
    try:
        if "--- stopped by SIGSTOP ---" not in log.read_text(errors="replace"):
            return None
        return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[-1])
    except (OSError, IndexError):
        return None


def pin_at(job, deed, call, when):
    """Stops the command at a call, pins the checkpoint that it is about to delete, and continues it: a confirmed pin
    holds. False if there was no such call."""
    job.reset(deed)
    job.log.unlink(missing_ok=True)
    words = [*strace(job.log, call, "signal=STOP", when), job.options.ckpt, *deed.words, "--io", job.options.io, "--threads", "1", "--no-mpi"]
    run = subprocess.Popen(words, cwd=job.directory, env=job.environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    still = None
    while run.poll() is None and still is None:
        time.sleep(0.002)
        still = stopped(job.log, run.pid)
    pins = []
    if still is not None:
        pins = [job.run("pin", f"r@{step}", "--store", "store") for step in deed.gone]
        os.kill(still, signal.SIGCONT)
    said = run.communicate(timeout=120)[0]
    if not pins:
        return False
    where = f"{deed.name}: pinned at {call} number {when}"
    check(run.returncode in (0, 3), f"{where}: exit {run.returncode}: {said}", *pins)
    for step, pin in zip(deed.gone, pins):
        check(pin.returncode in (0, 10, 11), f"{where}: exit {pin.returncode}", pin)
        live = job.tree(job.live(step))
        held = live is not None and job.whole.items() <= live.items()
        check(held or pin.returncode != 0, f"{where}: step {step} was pinned, and is gone", pin)
        check(held or live is None, f"{where}: half of step {step} in its run", pin)
    return True


def break_call(job, number, call, hows):
    count = 0
    every = job.options.every if job.options.every == 1 else 3 * job.options.every  # a pin may wait seconds for the catalog
    for deed in DEEDS[:2]:
        when = first_call(job.log, call, lambda before, deed=deed: job.run(*deed.words, before=before)) + number % every
        while pin_at(job, deed, call, when):
            when, count = when + every, count + 1
    for deed in DEEDS:
        job.reset(deed)
        if deed.prepare:
            job.run(*deed.prepare)
        begin = first_call(job.log, call, lambda before, deed=deed: job.run(*deed.words, before=before))
        for how in hows:
            when = begin + (number + count) % job.options.every
            while break_at(job, deed, call, how, when):
                when, count = when + job.options.every, count + 1
    return count


if __name__ == "__main__":
    sys.exit(breaking.main(Job, lambda job, before: job.run(*PRUNE, before=before), break_call, least=20))
