"""Runs the tests of recycling on an XFS whose files can share bytes, which lies in a file and is mounted in a namespace of its own.

    python3 recycle_on_xfs.py --test engine_unit
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
INSIDE = "CKPT_TEST_INSIDE"
WANTED = ("WhatSharesItsBytesIsNotTaken", "WhatOthersMayReadByAnAccessListIsNotTaken")


def inside(directory, test):
    image, place = directory / "image", directory / "mounted"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(400 << 20)  # most of it is never written
    for words in (("mkfs.xfs", "-q", "-m", "reflink=1", image), ("mount", "-o", "loop", image, place)):
        done = subprocess.run(words, text=True, capture_output=True)
        if done.returncode != 0:
            print(f"skipped: {words[0]}: {done.stderr}")
            return SKIPPED
    try:
        run = subprocess.run([test, "--gtest_filter=*Recycle*"], text=True, capture_output=True, env={**os.environ, "TEST_TMPDIR": str(place)})
        skipped = [line for line in run.stdout.splitlines() if "SKIPPED" in line and any(name in line for name in WANTED)]
        if run.returncode != 0 or any("threads" in line for line in skipped):
            print(run.stdout, run.stderr)
            return 1
        return 0
    finally:
        subprocess.run(["umount", place], check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--test", required=True)
    options = parser.parse_args()
    if INSIDE in os.environ:
        return inside(pathlib.Path(os.environ[INSIDE]), os.path.abspath(options.test))
    if os.geteuid() != 0 or shutil.which("mkfs.xfs") is None:
        print("skipped: only root mounts an XFS, where there is mkfs.xfs")
        return SKIPPED
    with tempfile.TemporaryDirectory() as directory:
        return subprocess.run(["unshare", "-m", sys.executable, *sys.argv], env={**os.environ, INSIDE: directory}).returncode


if __name__ == "__main__":
    sys.exit(main())
