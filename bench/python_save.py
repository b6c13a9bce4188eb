#!/usr/bin/env python3
"""Times the ways to save one model's state from Python, beside each other on one disk, and compares what each loads, bit for bit:

    CKPT_LIBRARY=build/release/lib/libckpt.so.1 bench/python_save.py --gib 4 --device cuda --rounds 3 /scratch/bench

Rows: torch.save + fsync; torch's dcp.save with 1 and 2 threads; dcp.async_save with its default stager and with one that is kept; dcp.save
and dcp.async_save with ckpt.dcp.Writer, the latter also with a ckpt.dcp.AsyncStager that is kept; ckpt.Run.save without staging memory, and
with enough of it for a whole save.
Columns, the medians of the rounds, in seconds: "blocks" is how long the call keeps the training loop, "total" ends when the
checkpoint is durable (torch's own writers sync their files, not their directory), "load" reads it back, from the page cache
if --drop-caches cannot drop it. GiB/s is size by total.
"""
import argparse
import contextlib
import gc
import os
import pathlib
import shutil
import statistics
import sys
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

import ckpt.dcp  # noqa: E402

GIB = 1 << 30


def make_state(gib, tensors, device):
    """BF16 weights and two FP32 moments of each, random bits, about `gib` in all."""
    generator = torch.Generator().manual_seed(1)
    elements = int(gib * GIB) // tensors // 10
    rows, columns = max(1, elements // 1024), min(elements, 1024)
    state = {}
    for i in range(tensors):
        for name, dtype in (("weight", torch.bfloat16), ("exp_avg", torch.float32), ("exp_avg_sq", torch.float32)):
            state[f"layer{i}.{name}"] = torch.randn(rows, columns, generator=generator).to(dtype).to(device)
    return state


def bytes_of(state):
    return sum(each.numel() * each.element_size() for each in state.values())


def wait_for_device(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def sync_directory(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


class Way:
    """A way to save: `save` returns what to call to wait until the checkpoint is durable, or None; `load` fills a state."""

    def __init__(self, name, save, load, close=lambda: None):
        self.name, self.save, self.load, self.close = name, save, load, close


def torch_save():
    def save(state, path):
        with open(path, "wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        sync_directory(os.path.dirname(path))

    def load(state, path):
        for name, tensor in torch.load(path, weights_only=True, map_location="cpu", mmap=True).items():
            state[name].copy_(tensor)

    return Way("torch.save + fsync", save, load)


def stock_dcp(threads):
    return Way(f"dcp.save, {threads} thread{'s' if threads > 1 else ''}",
               lambda state, path: drop(dcp.save(state, storage_writer=dcp.FileSystemWriter(path, thread_count=threads))),
               lambda state, path: dcp.load(state, storage_reader=dcp.FileSystemReader(path)))


def drop(result):
    """dcp.save returns metadata, nothing to wait for."""


def dcp_async(name, writer, reader, **stager):
    """`stager` is kept between saves, as in training."""
    return Way(name, lambda state, path: dcp.async_save(state, storage_writer=writer(path), **stager).result,
               lambda state, path: dcp.load(state, storage_reader=reader(path)))


def stock_stager(is_cuda):
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    return DefaultStager(StagingOptions(use_pinned_memory=is_cuda, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=is_cuda))


def our_dcp(threads):
    return Way(f"dcp.save, ckpt.dcp.Writer, {threads} threads",
               lambda state, path: drop(dcp.save(state, storage_writer=ckpt.dcp.Writer(path, threads=threads))),
               lambda state, path: dcp.load(state, storage_reader=ckpt.dcp.Reader(path)))


def run_save(staging):
    """One run for all rounds, as in training: its staging memory is kept."""
    runs = {}

    def run_of(path):
        directory = os.path.join(os.path.dirname(path), f"run{int(staging > 0)}")
        if directory not in runs:
            runs[directory] = ckpt.Run(directory, staging=staging)
        return runs[directory]

    step = iter(range(1, 1 << 30))
    return Way("ckpt.Run.save" + (", staging" if staging else ""),
               lambda state, path: run_of(path).save(next(step), state).wait,
               lambda state, path: run_of(path).load(into=state),
               lambda: [run.close() for run in runs.values()])


def drop_caches(path):
    """Pages of the files leave the cache; false if the system ignores it (tmpfs)."""
    for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def measure(way, state, directory, device, rounds):
    """Medians of seconds: blocking, until durable, to load. ValueError: another value came back."""
    times = []
    for i in range(rounds):
        path = directory / f"round{i}"
        gc.collect()
        wait_for_device(device)
        start = time.perf_counter()
        wait = way.save(state, str(path))
        blocked = time.perf_counter() - start
        if wait is not None:
            wait()
        total = time.perf_counter() - start
        drop_caches(directory)
        into = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
        start = time.perf_counter()
        way.load(into, str(path))
        wait_for_device(device)
        times.append((blocked, total, time.perf_counter() - start))
        for name, tensor in state.items():
            if not torch.equal(into[name].view(torch.uint8), tensor.view(torch.uint8)):
                raise ValueError(f"{way.name}: {name} came back different")
        del into
        remove(path)
        for old in sorted(directory.glob("run*/step-*"))[:-1]:
            shutil.rmtree(old)
    return [statistics.median(column) for column in zip(*(times[1:] or times))]


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path, help="on the disk to measure; emptied at the end")
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--tensors", type=int, default=64, help="weights; each has two moments")
    parser.add_argument("--device", default="cpu", help="cpu, cuda")
    parser.add_argument("--rounds", type=int, default=3, help="of each row; the first is dropped if there are more")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    device = torch.device(options.device)
    state = make_state(options.gib, options.tensors, device)
    size = bytes_of(state)
    directory = options.directory / f"python_save.{os.getpid()}"
    directory.mkdir(parents=True)
    ways = [torch_save(), stock_dcp(1), stock_dcp(2), dcp_async("dcp.async_save", dcp.FileSystemWriter, dcp.FileSystemReader), our_dcp(2), our_dcp(4),
            dcp_async("dcp.async_save, kept stager", dcp.FileSystemWriter, dcp.FileSystemReader, async_stager=stock_stager(device.type == "cuda")),
            dcp_async("dcp.async_save, ckpt.dcp.Writer", ckpt.dcp.Writer, ckpt.dcp.Reader),
            dcp_async("the same, ckpt.dcp.AsyncStager", ckpt.dcp.Writer, ckpt.dcp.Reader, async_stager=ckpt.dcp.AsyncStager()), run_save(0), run_save(size + size // 8 + (64 << 20))]
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    print(f"{size / GIB:.2f} GiB in {len(state)} tensors on {where}, torch {torch.__version__}, {os.cpu_count()} CPUs, {options.rounds} rounds")
    print(f"{'':36}{'blocks s':>10}{'total s':>10}{'GiB/s':>8}{'load s':>10}")
    try:
        for way in ways:
            if options.only in way.name:
                try:
                    blocked, total, load = measure(way, state, directory, device, options.rounds)
                except KeyError as error:  # torch 2.11: its DefaultStager cannot copy types
                    print(f"{way.name:36}fails: {error!r}", flush=True)
                    continue
                print(f"{way.name:36}{blocked:10.3f}{total:10.3f}{size / GIB / total:8.2f}{load:10.3f}", flush=True)
                way.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
