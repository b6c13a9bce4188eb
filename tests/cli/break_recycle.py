"""Breaks `ckpt prune` of a store whose retired files feed the next save, and that save, at every system call that touches
the disk: the call fails once with an error of the system, or the program is killed there. Afterwards kept checkpoints
are unchanged; retired files are complete and do not look like a checkpoint; the save is complete and verifies, or does
not exist; no retired file belongs to a committed checkpoint; and the same commands again finish the work.

    python3 break_recycle.py --ckpt CKPT --golden GOLDEN --io uring|threads [--every N] [--without CALL]

On ext4 and XFS only: in the working directory, else in /tmp.
"""
import argparse
import os
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from breaking import CALLS, SKIPPED, check, first_call, injected, strace, why_skipped
from break_prune import Job, PRUNE
from retired import suited

KEPT, GONE, NEW = (2, 3), 1, 4
POLICY = '[trash]\nrecycle = 1\npurge_early_when_free_below = "0%"\n[[rule]]\nruns = "*"\nkeep = { last = 1, steps = [2, 3] }\n'
RETIRE = ("prune", "--store", "store", "--apply", "-y")
# The calls of a probe, in addition to those of other commands.
PROBES = {"fcntl": ["EAGAIN"], "ioctl": ["EOPNOTSUPP"], "fstatfs": ["EIO"]}


class Store(Job):
    def reset(self, *_):
        shutil.rmtree(self.store, ignore_errors=True)
        one, self.whole = self.sources["safetensors/single"]
        for step in (GONE, *KEPT):
            shutil.copytree(one, self.live(step))
        (self.store / "ckpt.toml").write_text(POLICY)
        self.inodes = self.shards(GONE)

    def save_words(self):
        source = pathlib.Path(self.options.golden).absolute() / "safetensors/single/ckpt"
        return ("save", source, "--store", "store", "--run", "r", "--step", str(NEW))

    def shards(self, step):
        return {p.stat().st_ino for p in self.live(step).glob("shards/*/*")}

    def recycled(self):
        folder = self.store / ".ckpt/recycle"
        return {p.stat().st_ino for p in folder.iterdir()} if folder.is_dir() else set()

    def is_retired(self, run):
        """If the type of the file system cannot be determined, deleted checkpoints wait in the trash for their
        grace."""
        waits = "no benefit" in run.stderr
        return not self.live(GONE).exists() and (waits or not self.trashed(GONE).exists())


def check_safe(job, where, *runs):
    for step in KEPT:
        check(job.tree(job.live(step)) == job.whole, f"{where}: step {step}, which is kept, is not what it was", *runs)
    check(job.tree(job.live(GONE)) in (None, job.whole), f"{where}: half of step {GONE} in its run", *runs)
    trashed = job.tree(job.trashed(GONE))
    check(not trashed or trashed == job.whole or "manifest.json" not in trashed, f"{where}: half of step {GONE} looks whole", *runs)
    if job.live(NEW).exists():
        check(not job.recycled() & job.shards(NEW), f"{where}: a committed file may be overwritten", *runs)
        verified = job.run("verify", job.live(NEW))
        check(verified.returncode == 0, f"{where}: the save does not verify", verified, *runs)


def break_at(job, words, prepare, call, how, when):
    """False if there was no such call."""
    job.reset()
    if prepare:
        check(job.run(*prepare).returncode == 0, "what comes before")
    job.log.unlink(missing_ok=True)
    run = job.run(*words, before=strace(job.log, call, how, when))
    killed = how.startswith("signal")
    where = f"{words[0]}: {how} at {call} number {when}"
    check_safe(job, where, run)
    if (killed and run.returncode >= 0 and run.returncode != 137) or (not killed and not injected(job.log)):
        check(run.returncode == 0, f"{where}: nothing was broken, yet", run)
        return False
    check(killed or run.returncode in (0, 1, 2, 3, 10, 11, 12, 13, 14, 15, 16), f"{where}: exit {run.returncode}", run)
    for again in (RETIRE, job.save_words()):
        after = job.run(*again)
        check(after.returncode == 0, f"{where}: {again[0]} does not finish it", run, after)
        check_safe(job, f"{where}, and {again[0]} again", run, after)
    check(job.is_retired(run) and job.live(NEW).exists(), f"{where}: not done in the end", run)
    idle = job.run(*RETIRE[:3], "--keep-last", "9", *RETIRE[3:])  # recycles nothing
    left = [p for p in job.store.rglob("*") if p.name.endswith((".tmp", ".unchecked")) or ".partial-" in p.name]
    check(idle.returncode == 0 and not left and not job.recycled(), f"{where}: {left} stays", run, idle)
    check_safe(job, f"{where}, and after another prune", run, idle)
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
    places = [place for place in (os.getcwd(), "/tmp") if suited(place)]
    if not places:
        print("skipped: neither ext4 nor XFS here")
        return SKIPPED
    directory = tempfile.mkdtemp(dir=places[0])
    try:
        job = Store(options, directory)
        job.reset()
        reason = why_skipped(job.log, lambda before: job.run(*PRUNE, before=before))
        if reason:
            print(reason)
            return SKIPPED
        job.reset()
        inodes = job.inodes
        labelled = next(job.live(GONE).glob("shards/*/*"))
        os.setxattr(labelled, "user.test", b"old")  # a new file may get the inode of a removed one
        check(job.run(*RETIRE).returncode == 0 and job.recycled() == inodes, "nothing is retired")
        check(job.run(*job.save_words()).returncode == 0 and job.shards(NEW) == inodes, "nothing is taken")
        check(any("user.test" in os.listxattr(p) for p in job.live(NEW).glob("shards/*/*")), "it was made anew")
        total = 0
        for number, (call, errors) in enumerate({**CALLS, **PROBES}.items()):
            if call == options.without:
                print(f"{call}: left alone")
                continue
            count = 0
            for words, prepare in ((RETIRE, ()), (job.save_words(), RETIRE)):
                job.reset()
                if prepare:
                    job.run(*prepare)
                begin = first_call(job.log, call, lambda before, words=words: job.run(*words, before=before))
                for how in ["signal=KILL"] + [f"error={error}" for error in errors]:
                    when = begin + (number + count) % options.every
                    while break_at(job, words, prepare, call, how, when):
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
