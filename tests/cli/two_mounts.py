"""A store on a real file system whose locks do not reach everyone: one directory, mounted twice by bindfs (FUSE), with
separate locks for each mount. A checkpoint read through one mount is not deleted through the other; killed readers are
recognised as dead; saves and conversions do not touch each other's partials; repair removes them. Skipped if bindfs is
not installed or cannot mount.

    python3 two_mounts.py --ckpt CKPT --golden GOLDEN
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from breaking import SKIPPED, check

BYTES = 192 << 20


class Job:
    def __init__(self, options, directory):
        self.options, self.directory = options, pathlib.Path(directory)
        self.mounts = [self.directory / "m1", self.directory / "m2"]
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("CKPT_")} | {"CKPT_NO_MPI": "1"}

    def run(self, *words, code=0):
        run = subprocess.run([self.options.ckpt, *map(str, words)], text=True, capture_output=True, timeout=120, cwd=self.directory,
                             env=self.environment)
        check(run.returncode == code, f"exit {run.returncode}, not {code}", run)
        return run

    def prune(self, mount, code):
        return self.run("prune", "--store", self.mounts[mount] / "store", "--keep-last", 1, "--purge-early-below", 0, "--apply", "-y",
                        "--grace", 0, code=code)

    def claims(self):
        """Of readers: the ids that begin their names; a deleter's turn is none."""
        found = self.directory / "under/store/.ckpt/claims"
        return [name for name in os.listdir(found) if name.count("-") >= 5 and not name.startswith(("seen-", "look-"))]

    def reading(self, checkpoint):
        """A verify that has claimed the checkpoint and is stopped."""
        for _ in range(20):
            reader = subprocess.Popen([self.options.ckpt, "verify", checkpoint], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      env=self.environment)
            while reader.poll() is None and not self.claims():
                time.sleep(0.0005)
            reader.send_signal(signal.SIGSTOP)
            if reader.poll() is None and self.claims():
                return reader
            reader.send_signal(signal.SIGCONT)
            reader.wait(timeout=60)
        raise SystemExit("no verify could be stopped while it reads")


def source(path):
    """A safetensors file that takes a moment to read."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [BYTES], "data_offsets": [0, BYTES]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + BYTES)


def test(job):
    source(job.directory / "big.safetensors")
    for step in (1, 2, 3):
        job.run("save", job.directory / "big.safetensors", "--store", job.mounts[0] / "store", "--run", "r", "--step", step)
    names = sorted(os.listdir(job.directory / "under/store/r"))
    check(len(names) == 3, f"{names}")
    # The first prune on a host cannot know yet that all readers have claims; this simulates ten minutes of observation.
    job.prune(1, 3)
    check(sorted(os.listdir(job.directory / "under/store/r")) == names, "nothing goes before")
    (job.directory / "under/store/.ckpt/claims/ready").write_text("")
    reader = job.reading(job.mounts[0] / "store/r" / names[0])
    try:
        kept = job.prune(1, 3)
        check(f"pid {reader.pid}" in kept.stdout + kept.stderr, "who reads it", kept)
        check(sorted(os.listdir(job.directory / "under/store/r")) == [names[0], names[2]], "what is read stays, and no more")
        reader.send_signal(signal.SIGCONT)
        check(reader.wait(timeout=60) == 0, "what it read was whole")
    finally:
        reader.kill()
        reader.wait()
    check(job.claims() == [], f"claims stay: {job.claims()}")
    # Killed: its own host knows at once.
    reader = job.reading(job.mounts[1] / "store/r" / names[0])
    reader.kill()
    reader.wait()
    check(len(job.claims()) == 1, f"{job.claims()}")
    job.run("doctor", job.mounts[0] / "store")
    found = job.run("repair", job.mounts[0] / "store")
    check("claim" in found.stdout, "repair names the claim", found)
    job.prune(0, 0)
    check(os.listdir(job.directory / "under/store/r") == names[2:] and job.claims() == [], "nobody reads it any more")
    # A partial may be another host's.
    partial = job.directory / f"under/store/r/step-000000009.partial-{'a' * 32}"
    partial.mkdir()
    (partial / "x").write_text("x")
    job.run("save", job.directory / "big.safetensors", "--store", job.mounts[1] / "store", "--run", "r", "--step", 10)
    job.run("repair", job.mounts[1] / "store", "--apply")
    check(partial.is_dir(), "nobody has watched it for ten minutes")
    job.run("verify", job.mounts[0] / "store/r" / names[2])
    print("read beside a prune, killed, and left over: as they should be")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ckpt", required=True)
    parser.add_argument("--golden", required=True)
    options = parser.parse_args()
    options.ckpt = os.path.abspath(options.ckpt)
    if shutil.which("bindfs") is None or shutil.which("fusermount") is None:
        print("skipped: bindfs or fusermount is missing")
        return SKIPPED
    directory = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    job = Job(options, directory)
    (job.directory / "under").mkdir()
    mounted = []
    try:
        for mount in job.mounts:
            mount.mkdir()
            done = subprocess.run(["bindfs", "--no-allow-other", str(job.directory / "under"), str(mount)], text=True, capture_output=True)
            if done.returncode != 0:
                print(f"skipped: bindfs may not mount here: {done.stderr.strip()}")
                return SKIPPED
            mounted.append(mount)
        test(job)
    finally:
        for mount in mounted:
            subprocess.run(["fusermount", "-u", "-z", str(mount)], check=False)
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
