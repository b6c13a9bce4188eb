#!/usr/bin/env python3
"""A store of many checkpoints, and the time of each command: list, latest, status, the plan of prune, a rebuild, deletion;
and status with as many in the trash.

    python bench/catalog.py STORE --ckpt build/release/bin/ckpt [--count 100000]

Each checkpoint is a genuine one of a few bytes, its files links to a few originals, so that STORE costs names and no
space; STORE is created if it does not exist. Times are of whole processes, warm: median, minimum and maximum of the
rounds. The last case makes one checkpoint of 100 GiB out of holes, which costs nothing to write, and deletes it.
"""
import argparse
import json
import os
import pathlib
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import time

LINKS = 30_000  # fewer than any file system allows of one file


def make_template(ckpt, path, elements=16):
    source = path.with_name("template.safetensors")
    size = 4 * elements
    header = json.dumps({"w": {"dtype": "F32", "shape": [elements], "data_offsets": [0, size]}}).encode()
    with open(source, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + bytes(size))
    subprocess.run([ckpt, "convert", source, path, "--to", "ckpt"], check=True, stdout=subprocess.DEVNULL)


def make_store(ckpt, store, count):
    run = store / "r"
    run.mkdir(parents=True)
    template = store.parent / "template"
    shutil.rmtree(template, ignore_errors=True)
    make_template(ckpt, template)
    below = sorted(p.relative_to(template) for p in template.rglob("*"))
    folders = [p for p in below if (template / p).is_dir()]
    files = [p for p in below if (template / p).is_file()]
    for i in range(1, count + 1):
        if i % LINKS == 0:
            template = shutil.copytree(template, store.parent / f"template-{i}")
        one = run / f"step-{i * 10:09}.g{i}"
        one.mkdir()
        for folder in folders:
            (one / folder).mkdir()
        for file in files:
            os.link(template / file, one / file)


def measure(label, command, rounds, codes=(0,)):
    times, processor = [], []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        times.append(time.monotonic() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if done.returncode not in codes:
            sys.exit(f"{label}: exit {done.returncode}: {done.stderr.decode()}")
    print(f"| {label} | {statistics.median(times):.3f} s ({min(times):.3f}-{max(times):.3f}) | "
          f"{statistics.median(processor):.3f} s ({min(processor):.3f}-{max(processor):.3f}) |", flush=True)
    return statistics.median(times)


def delete_much(ckpt, store, rounds):
    """One checkpoint of 100 GiB in 4 files of holes beside three small ones: only the deletion is timed."""
    big = store.with_name("big")
    for _ in range(rounds):
        shutil.rmtree(big, ignore_errors=True)
        make_store(ckpt, big, 4)
        # Its hashes may be wrong: a checkpoint is deleted without comparing them.
        for i in range(4):
            with open(big / "r/step-000000010.g1/shards/weights" / f"{i + 1:05}-00000.safetensors", "wb") as file:
                os.truncate(file.fileno(), 25 << 30)
        command = [ckpt, "prune", "--store", big, "--keep-last", "3", "--purge-early-below", "0", "--apply", "-y"]
        measure("prune --apply of 100 GiB", command, 1)


def fill_trash(ckpt, store, count):
    """As many deleted checkpoints: one is deleted, and its record is copied for all. Their directories are empty,
    because no command reads them."""
    small = store.with_name("trash-template")
    shutil.rmtree(small, ignore_errors=True)
    make_store(ckpt, small, 2)
    subprocess.run([ckpt, "prune", "--store", small, "--keep-last", "1", "--purge-early-below", "0", "--apply", "-y"],
                   check=True, stdout=subprocess.DEVNULL)
    record = (small / ".ckpt/trash/r/step-000000010.g1.json").read_bytes()
    trash = store / ".ckpt/trash/r"
    trash.mkdir(parents=True)
    for i in range(1, count + 1):
        name = trash / f"step-{i * 10:09}.g{count + i}"
        name.mkdir()
        name.with_name(name.name + ".json").write_bytes(record)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=pathlib.Path)
    parser.add_argument("--ckpt", default="build/release/bin/ckpt")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    store, ckpt = args.store.absolute(), os.path.abspath(args.ckpt)
    if not store.exists():
        make_store(ckpt, store, args.count)
    at = ["--store", store]
    count = len(os.listdir(store / "r"))
    print(f"| {count} checkpoints in one run | whole process | of it, processor time |\n|---|---|---|")
    rebuild = measure("`list --rebuild -n 1`", [ckpt, "list", "--rebuild", "-n", "1", *at], 1)
    print(f"| that is, checkpoints a second | {count / rebuild:.0f} | |")
    time.sleep(5)  # a directory that was just changed is listed again
    measure("the first `list -n 1`", [ckpt, "list", "-n", "1", *at], 1)
    measure("`list -n 20`", [ckpt, "list", "-n", "20", *at], args.rounds)
    measure("the newest: `list -n 1`", [ckpt, "list", "-n", "1", *at], args.rounds)
    measure("`status`", [ckpt, "status", *at], args.rounds)
    measure("plan of `prune --keep-last 3 --keep-every 100`",
            [ckpt, "prune", "--keep-last", "3", "--keep-every", "100", *at], args.rounds, (0, 1))
    measure("the same with `--json`",
            [ckpt, "prune", "--keep-last", "3", "--keep-every", "100", "--json", *at], args.rounds, (0, 1))
    if not (store / ".ckpt/trash/r").exists():
        fill_trash(ckpt, store, count)
        time.sleep(5)
    measure(f"the first `status` with {count} in the trash", [ckpt, "status", *at], 1)
    measure("the next ones", [ckpt, "status", *at], args.rounds)
    delete_much(ckpt, store, 3)


if __name__ == "__main__":
    main()
