"""Breaks `ckpt save`, and the catalog's part of `ckpt list`, at every system call that touches the disk: the call fails once
with an error of the system (no space in SQLite among them), or the program is killed there. Existing contents of the
store are unchanged; a save is complete or absent, and the same command again finishes it, byte for byte; the catalog
afterwards, and any list that succeeds meanwhile, equals the contents of the disk.
"""
import json
import re
import shutil
import sys

import breaking
from breaking import check, first_call, strace, was_broken

AT = ("--store", "store")
LIST = ("list", *AT, "--json")
FAILURES = (0, 3, 10, 11, 12, 13, 14, 15, 16)


class Job(breaking.Job):
    def __init__(self, options, directory):
        super().__init__(options, directory)
        self.source = self.golden / "safetensors/single/ckpt"
        for step in (1, 2):
            made = self.run(*self.save(step), "--tag", "t")
            check(made.returncode == 0, "a checkpoint", made)
        self.template = self.directory / "template"
        self.truth = self.rows(self.run(*LIST))
        check(len(self.truth) == 2, "two checkpoints")
        self.store.rename(self.template)
        self.whole = self.tree(self.template / "r")
        self.reset()
        check(self.run(*self.save(3)).returncode == 0, "a third one")
        self.third = self.tree(self.store / "r/step-000000003.g3")
        self.all = self.rows(self.run(*LIST))
        check(len(self.all) == 3 and self.third, "three checkpoints")

    def save(self, step):
        return ("save", self.source, *AT, "--run", "r", "--step", str(step))

    @staticmethod
    def rows(run):
        """The facts that a list prints of each checkpoint; None if it failed."""
        document = json.loads(run.stdout) if run.stdout else {}
        data = document.get("data")
        return data and {row["directory"]: row for row in data["checkpoints"]}

    def reset(self):
        shutil.rmtree(self.store, ignore_errors=True)
        shutil.copytree(self.template, self.store)

    def expected(self):
        """The facts that a list must print."""
        return self.all if (self.store / "r/step-000000003.g3").is_dir() else self.truth


class Deed:
    """A command, what is done before it, and whether it reads every checkpoint again: a break may then fall on one of them."""

    def __init__(self, name, words, prepare):
        self.name, self.words, self.prepare = name, words, prepare


def deeds(job):
    def inbox():  # a save whose note waits
        check(job.run(*job.save(3)).returncode == 0, "the save before")

    def lost():
        shutil.rmtree(job.store / ".ckpt")

    return [Deed("save", job.save(3), lambda: None), Deed("fold", LIST, inbox), Deed("rebuild", (*LIST, "--rebuild"), inbox),
            Deed("anew", LIST, lost)]


def check_safe(job, where, *runs):
    for path, data in job.whole.items():
        kept = job.store / "r" / path
        check(kept.is_file() and kept.read_bytes() == data, f"{where}: {path} is not what it was", *runs)
    third = job.tree(job.store / "r/step-000000003.g3")
    check(third in (None, job.third), f"{where}: half of a save under its name", *runs)


def check_list(job, where, run, *runs):
    """Listed facts are true; checkpoints that could not be read at that moment are listed as unreadable, or a warning
    names their run."""
    rows, expected = job.rows(run), job.expected()
    unread = any(": cannot list: " in warning["text"] for warning in json.loads(run.stdout)["warnings"])
    check(rows is not None and (rows.keys() == expected.keys() or (unread and rows.keys() < expected.keys())), f"{where}: another list",
          run, *runs)
    for name, row in rows.items():
        check(row == expected[name] or row["state"] == "unreadable" or row["marks_unreadable"], f"{where}: {name}: {row}", run, *runs)


def calls_of(job, deed, call):
    """The numbers of the calls of a kind that a command makes."""
    def run(before):
        job.reset()
        deed.prepare()
        job.run(*deed.words, before=before)
    begin = first_call(job.log, call, run)
    run(["strace", "-f", "-qq", "-o", job.log, "-e", f"trace={call}"])
    return range(begin, 1 + len(re.findall(rf"^\d+ +{call}\(", job.log.read_text(errors="replace"), re.M)))


def break_at(job, deed, call, how, when):
    """False if there was no such call."""
    job.reset()
    deed.prepare()
    job.log.unlink(missing_ok=True)
    run = job.run(*deed.words, before=strace(job.log, call, how, when))
    killed = how.startswith("signal")
    where = f"{deed.name}: {how} at {call} number {when}"
    if not was_broken(job, how, run):
        check(run.returncode == 0, f"{where}: nothing was broken, yet", run)
        return False
    check_safe(job, where, run)
    check(killed or run.returncode in FAILURES, f"{where}: exit {run.returncode}", run)
    if run.returncode == 0 and deed.name == "save":
        check((job.store / "r/step-000000003.g3").is_dir(), f"{where}: it says that it saved", run)
    if run.returncode == 0 and deed.name != "save":
        check_list(job, where, run)
    after = job.run(*LIST)
    check(after.returncode == 0 and job.rows(after) == job.expected(), f"{where}: the list afterwards", run, after)
    check(json.loads(after.stdout)["data"]["indexed"], f"{where}: the catalog cannot be used any more", run, after)
    rebuilt = job.run(*LIST, "--rebuild")
    check(job.rows(rebuilt) == job.rows(after), f"{where}: another catalog from the disk alone", run, after, rebuilt)
    if deed.name == "save":
        again = job.run(*job.save(3))
        check(again.returncode == 0, f"{where}: the next run does not finish it", run, again)
        check_safe(job, where + ", and again", run, again)
        names = sorted(p.name for p in (job.store / "r").iterdir())
        check(names == [f"step-00000000{n}.g{n}" for n in (1, 2, 3)], f"{where}: {names}", run, again)
        listed = job.run(*LIST)
        check(job.rows(listed) == job.all, f"{where}: the list after the next run", run, again, listed)
    return True


def break_call(job, number, call, hows):
    count, every = 0, job.options.every
    for place, deed in enumerate(deeds(job)):
        numbers = calls_of(job, deed, call)
        for turn, how in enumerate(hows):
            if every > 1 and (number + turn + place) % 2:
                continue  # the other half of the failures
            first = (number + turn) % min(every, len(numbers)) if numbers else 0
            count += sum(break_at(job, deed, call, how, when) for when in numbers[first::every])
    return count


if __name__ == "__main__":
    sys.exit(breaking.main(Job, lambda job, before: job.run(*LIST, before=before), break_call, least=20))
