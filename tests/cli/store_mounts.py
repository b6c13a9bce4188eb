"""A store on a file system that is full, or mounted read-only: the catalog causes a warning, every answer is the same,
a save fails without a trace, and afterwards everything works again. Deletion stops at mount points. The file
systems are a small tmpfs in a separate namespace.

    python3 store_mounts.py --ckpt CKPT --golden GOLDEN
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from breaking import SKIPPED, check

INSIDE = "CKPT_TEST_INSIDE"


class Job:
    def __init__(self, options, directory):
        self.options, self.directory = options, pathlib.Path(directory)
        self.store = self.directory / "store"
        self.source = pathlib.Path(options.golden).absolute() / "safetensors/single/ckpt"

    def run(self, *words, code=0):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CKPT_")}
        run = subprocess.run([self.options.ckpt, *words, "--store", "store", "--no-mpi"], text=True, capture_output=True, timeout=120,
                             cwd=self.directory, env=environment)
        check(run.returncode == code, f"exit {run.returncode}, not {code}", run)
        return run

    def save(self, step, code=0):
        return self.run("save", self.source, "--run", "r", "--step", str(step), code=code)

    def listed(self):
        """The rows, whether the catalog could be used, and the warnings."""
        run = self.run("list", "--json")
        document = json.loads(run.stdout)
        warnings = [warning["text"] for warning in document["warnings"]]
        check(bool(warnings) != document["data"]["indexed"], "no warning, or one too many", run)
        return document["data"]["checkpoints"], document["data"]["indexed"], warnings

    def tree(self):
        """Of the checkpoints, without the catalog."""
        return {p.relative_to(self.store).as_posix(): p.read_bytes() for p in self.store.rglob("*") if p.is_file() and ".ckpt" not in p.parts}

    def remount(self, *words):
        for _ in range(100):
            done = subprocess.run(["mount", "-o", *words, "none", self.store], text=True, capture_output=True)
            if "busy" not in done.stderr:
                break
            time.sleep(0.1)  # the kernel closes the files of a ring after its process has ended
        check(done.returncode == 0, "mount", done)


def fill_disk(job):
    """Fills the disk with STORE/filler until no block is free."""
    with open(job.store / "filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError:
            pass


def check_full(job):
    """Full before the catalog is made, and full when it must grow."""
    for lost in (True, False):
        if lost:
            for file in (job.store / ".ckpt").glob("catalog.sqlite*"):
                file.unlink()
        else:
            job.run("pin", "r@1", "--owner", "ana")  # whose note the catalog must process
        fill_disk(job)
        before = job.tree()
        rows, indexed, _ = job.listed()
        check(not indexed and len(rows) == 1 and len(rows[0]["pins"]) == (0 if lost else 1), f"on a full disk: {rows}")
        job.save(9, code=14)
        check(job.tree() == before, "a save that failed left something")
        (job.store / "filler").unlink()
        again, indexed, _ = job.listed()
        check(again == rows and indexed, f"the catalog afterwards: {indexed}, {again}, not {rows}")


def check_pruned_when_full(job):
    """If no block is free, a deletion has no room for its record unless the index is removed."""
    for step in range(10, 16):
        job.save(step)
    job.listed()
    fill_disk(job)
    check(os.statvfs(job.store).f_bavail == 0, "not full")
    job.run("prune", "--keep-last", "1", "--apply", "-y")
    check(os.statvfs(job.store).f_bavail > 0, "nothing was freed")
    check(sorted(p.name[:14] for p in (job.store / "r").glob("step-*")) == ["step-000000015"], "others stayed")
    (job.store / "filler").unlink()
    rows, indexed, _ = job.listed()
    check(indexed and [row["step"] for row in rows] == [15], f"afterwards: {rows}")


def check_read_only(job):
    for lost in (False, True):
        if lost:
            for file in (job.store / ".ckpt").glob("catalog.sqlite*"):
                file.unlink()
        else:
            job.save(2)  # its note is not processed
        before = job.tree()
        job.remount("remount,ro")
        rows, _, _ = job.listed()
        check(sorted(row["step"] for row in rows) == [1, 2], f"{rows}")
        job.run("status")
        job.save(9, code=16)
        check(job.tree() == before, "something was written")
        job.remount("remount,rw")
        again, indexed, _ = job.listed()
        check(again == rows and indexed, f"the catalog afterwards: {indexed}, {again}, not {rows}")


def check_mounted_inside(job):
    """What is mounted in a checkpoint outlives its deletion, even where it holds files of the same names."""
    job.save(20)
    job.save(21)
    prune = ("prune", "--keep-last", "1", "--purge-early-below", "0", "--grace", "3s", "--apply", "-y")
    job.run(*prune)
    inside = next((job.store / ".ckpt" / "trash" / "r").glob("step-000000020*/shards/weights"))
    other = next((job.store / "r").glob("step-000000021*/shards/weights"))
    files = sorted(p.name for p in other.iterdir())
    check(files == sorted(p.name for p in inside.iterdir()), f"other names: {files}")
    done = subprocess.run(["mount", "--bind", other, inside], text=True, capture_output=True)
    check(done.returncode == 0, "mount --bind", done)
    time.sleep(3.1)  # its grace period
    try:
        run = job.run(*prune, code=3)
        check("it is a mount point" in run.stderr, "the mount is not named", run)
        check(sorted(p.name for p in other.iterdir()) == files, "what was mounted is gone")
    finally:
        subprocess.run(["umount", inside], check=True)
    job.run(*prune)
    check(sorted(p.name for p in other.iterdir()) == files and not inside.exists(), "afterwards")
    job.run("verify", other.parents[1])


def check_run_on_another_file_system(job):
    """A rename into the trash cannot leave its file system: it stays, and nothing says that it was deleted."""
    run = job.store / "far"
    run.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", run], text=True, capture_output=True)
    check(mounted.returncode == 0, "mount", mounted)
    try:
        for step in ("1", "2"):
            job.run("save", job.source, "--run", "far", "--step", step)
        done = job.run("rm", "far@1", code=3)
        check("on another file system than the trash of its store" in done.stderr, "the reason", done)
        check(not list((job.store / ".ckpt/trash/far").glob("*.json")), "a record of a deletion that did not happen")
        done = job.run("why", "far@1")
        check("deleted" not in done.stdout, "why", done)
    finally:
        subprocess.run(["umount", run], check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ckpt", required=True)
    parser.add_argument("--golden", required=True)
    options = parser.parse_args()
    options.ckpt = os.path.abspath(options.ckpt)
    if INSIDE not in os.environ:
        words = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
        try:
            probe = subprocess.run([*words, "mount", "-t", "tmpfs", "none", "/mnt"], text=True, capture_output=True)
        except FileNotFoundError:
            print("skipped: unshare is missing")
            return SKIPPED
        if probe.returncode != 0:
            print(f"skipped: namespaces are not permitted here: {probe.stderr.strip()}")
            return SKIPPED
        return subprocess.run([*words, sys.executable, *sys.argv], env={**os.environ, INSIDE: "1"}).returncode
    with tempfile.TemporaryDirectory() as directory:
        job = Job(options, directory)
        job.store.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", job.store], text=True, capture_output=True)
        check(mounted.returncode == 0, "mount", mounted)
        try:
            job.save(1)
            check_full(job)
            check_read_only(job)
            job.run("unpin", "r@1")
            check_pruned_when_full(job)
            check_mounted_inside(job)
            check_run_on_another_file_system(job)
        finally:
            subprocess.run(["umount", job.store], check=True)
    print("a full and a read-only store, and one that is pruned when full")
    return 0


if __name__ == "__main__":
    sys.exit(main())
