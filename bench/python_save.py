#!/usr/bin/env python3
"""Times the ways to save one model's state from Python, beside each other on one disk, and compares what each loads, bit for bit:

    CKPT_LIBRARY=build/release/lib/libckpt.so.1 bench/python_save.py --gib 4 --device cuda --rounds 3 /scratch/bench

Rows: torch.save + fsync; safetensors + fsync; torch's dcp.save with 1 and 2 threads; dcp.async_save with its default stager and with one that is
kept; dcp.save and dcp.async_save with ckpt.dcp.Writer, the latter also with a ckpt.dcp.AsyncStager that is kept; Orbax and Meta's
torch_checkpointing where they are installed (`pip install orbax-checkpoint torch-checkpointing`), synced by `syncfs`; ckpt.Run.save without
staging memory, and with enough of it for a whole save; and a copy of all tensors by two threads, for comparison with what blocks.
Columns, the medians of the rounds, in seconds: "blocks" is how long the call keeps the training loop, "total" ends when the checkpoint is
durable (torch's own writers sync their files, not their directory), "load" reads it back, from the disk. GiB/s is size by total. With --fio,
which takes root, each save follows a write of fio of as many bytes, and each load a read (as bench.py measures them): "of fio" is fio's time
over that of "total" or "load". By several processes, each with its part of the state, where the writer can do that:

    torchrun --nproc-per-node 2 bench/python_save.py --gib 4 --fio /scratch/bench
"""
import argparse
import concurrent.futures
import contextlib
import ctypes
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
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

import ckpt.dcp  # noqa: E402
from bench import Bench, drop_caches  # noqa: E402

GIB = 1 << 30
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def wait_for_ranks():
    if RANKS > 1:
        dist.barrier()


def make_state(gib, tensors, device):
    """BF16 weights and two FP32 moments of each, random bits, about `gib` in all: this rank's, under names that no other has."""
    generator = torch.Generator().manual_seed(1 + RANK)
    elements = int(gib * GIB) // tensors // 10
    rows, columns = max(1, elements // 1024), min(elements, 1024)
    state = {}
    for i in range(tensors):
        for name, dtype in (("weight", torch.bfloat16), ("exp_avg", torch.float32), ("exp_avg_sq", torch.float32)):
            state[f"rank{RANK}.layer{i}.{name}"] = torch.randn(rows, columns, generator=generator).to(dtype).to(device)
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


def sync_file_system(path):
    """Of writers that sync nothing themselves."""
    descriptor = os.open(path, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    os.close(descriptor)


class Way:
    """A way to save: `save` returns what to call to wait until the checkpoint is durable, or None; `load` fills a state. `group`: of several
    ranks together."""

    def __init__(self, name, save, load, close=lambda: None, group=False):
        self.name, self.save, self.load, self.close, self.group = name, save, load, close, group


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


def safetensors_file():
    from safetensors.torch import load_file, save_file

    def save(state, path):
        save_file(state, path)
        sync_file_system(os.path.dirname(path))

    def load(state, path):
        for name, tensor in load_file(path).items():
            state[name].copy_(tensor)

    return Way("safetensors + sync", save, load)


def orbax():
    """Of numpy arrays; 16-bit values as integers, as their bytes are what is compared."""
    import orbax.checkpoint
    checkpointer = orbax.checkpoint.Checkpointer(orbax.checkpoint.PyTreeCheckpointHandler())

    def arrays(state):
        return {name: (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy() for name, tensor in state.items()}

    def save(state, path):
        checkpointer.save(path, arrays(state))
        sync_file_system(os.path.dirname(path))

    def load(state, path):
        for name, array in checkpointer.restore(path).items():
            state[name].copy_(torch.from_numpy(array).view(state[name].dtype))

    return Way("Orbax + sync", save, load)


def torch_checkpointing():
    from torch_checkpointing.checkpoint_manager import CheckpointManager, ItemSpec
    from torch_checkpointing.default_resharder import DefaultResharder
    from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig
    config = CheckpointManager.Config.with_sync_save()
    config.items = {"model": ItemSpec(resharder=DefaultResharder())}
    config.storage_config = LocalFileSystemStorageConfig(use_direct_io=False)
    manager = config.build()

    def save(state, path):
        manager.save(path, {"model": state})
        sync_file_system(os.path.dirname(path))

    return Way("torch_checkpointing + sync", save, lambda state, path: manager.load(path, {"model": state}))


def copy_by_two_threads():
    """Not a save: what staging costs at least. No load."""
    copies = {}

    def save(state, path):
        for name, tensor in state.items():
            if name not in copies:
                copies[name] = torch.zeros_like(tensor)
        names = sorted(state, key=lambda name: -state[name].numel())
        torch.set_num_threads(1)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda name: copies[name].copy_(state[name]), names))

    def load(state, path):
        for name, tensor in state.items():
            tensor.copy_(copies[name])

    return Way("copy by two threads", save, load, group=True)


def stock_dcp(threads):
    return Way(f"dcp.save, {threads} thread{'s' if threads > 1 else ''}",
               lambda state, path: drop(dcp.save(state, storage_writer=dcp.FileSystemWriter(path, thread_count=threads))),
               lambda state, path: dcp.load(state, storage_reader=dcp.FileSystemReader(path)), group=True)


def drop(*ignored, **options):
    """dcp.save returns metadata, nothing to wait for."""


def dcp_async(name, writer, reader, **stager):
    """`stager` is kept between saves, as in training."""
    return Way(name, lambda state, path: dcp.async_save(state, storage_writer=writer(path), **stager).result,
               lambda state, path: dcp.load(state, storage_reader=reader(path)), group=True)


def stock_stager(is_cuda):
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    return DefaultStager(StagingOptions(use_pinned_memory=is_cuda, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=is_cuda))


def our_dcp(threads):
    return Way(f"dcp.save, ckpt.dcp.Writer, {threads} threads",
               lambda state, path: drop(dcp.save(state, storage_writer=ckpt.dcp.Writer(path, threads=threads))),
               lambda state, path: dcp.load(state, storage_reader=ckpt.dcp.Reader(path)), group=True)


def run_save(staging):
    """One run for all rounds, as in training: its staging memory is kept."""
    runs = {}

    def run_of(path):
        directory = os.path.join(os.path.dirname(path), f"run{int(staging > 0)}")
        if directory not in runs:
            runs[directory] = ckpt.Run(directory, staging=staging, group="world" if RANKS > 1 else None)
        return runs[directory]

    step = iter(range(1, 1 << 30))
    return Way("ckpt.Run.save" + (", staging" if staging else ""),
               lambda state, path: run_of(path).save(next(step), state).wait,
               lambda state, path: run_of(path).load(into=state),
               lambda: [run.close() for run in runs.values()], group=True)


class Fio(Bench):
    """Times of fio for `size` bytes: written into a file of a new directory, as a save's are, and read."""

    def __init__(self, directory, size):
        super().__init__(argparse.Namespace(ckpt="", work=directory / "fio"))
        self.size = size >> 22 << 22

    def write(self):
        self.remove(self.work / "fresh")
        (self.work / "fresh").mkdir()
        seconds = self.fio(self.fio_job("write", "write", self.work / "fresh" / "file", self.size, ["--fallocate=native", "--end_fsync=1"]))
        self.remove(self.work / "fresh")
        return seconds

    def read(self):
        return self.fio_read(self.size)


def measure(way, state, directory, device, rounds, fio):
    """Medians of seconds: blocking, until durable, to load; and of fio's time over the last two, NaN without fio. ValueError: another value
    came back."""
    times = []
    for i in range(rounds):
        path = directory / f"round{i}"
        gc.collect()
        wait_for_device(device)
        write = fio.write() if fio else float("nan")
        wait_for_ranks()
        start = time.perf_counter()
        wait = way.save(state, str(path))
        blocked = time.perf_counter() - start
        if wait is not None:
            wait()
        wait_for_ranks()
        total = time.perf_counter() - start
        read = fio.read() if fio else float("nan")
        into = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
        drop_caches()
        wait_for_ranks()
        start = time.perf_counter()
        way.load(into, str(path))
        wait_for_device(device)
        wait_for_ranks()
        load = time.perf_counter() - start
        times.append((blocked, total, load, write / total, read / load))
        for name, tensor in state.items():
            if not torch.equal(into[name].view(torch.uint8), tensor.view(torch.uint8)):
                raise ValueError(f"{way.name}: {name} came back different")
        del into
        wait_for_ranks()
        if RANK == 0:
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
    parser.add_argument("--fio", action="store_true", help="compare with fio")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    device = torch.device(options.device)
    if RANKS > 1:
        dist.init_process_group("gloo")
    state = make_state(options.gib / RANKS, options.tensors, device)
    own = bytes_of(state)
    size = own * RANKS
    directory = options.directory / f"python_save.{os.getppid() if RANKS > 1 else os.getpid()}"
    directory.mkdir(parents=True, exist_ok=True)
    fio = Fio(directory, size) if options.fio and RANK == 0 else None
    copy = copy_by_two_threads()
    ways = [copy, torch_save(), safetensors_file(), stock_dcp(1), stock_dcp(2),
            dcp_async("dcp.async_save", dcp.FileSystemWriter, dcp.FileSystemReader), our_dcp(2), our_dcp(4),
            dcp_async("dcp.async_save, kept stager", dcp.FileSystemWriter, dcp.FileSystemReader, async_stager=stock_stager(device.type == "cuda")),
            dcp_async("dcp.async_save, ckpt.dcp.Writer", ckpt.dcp.Writer, ckpt.dcp.Reader),
            dcp_async("the same, ckpt.dcp.AsyncStager", ckpt.dcp.Writer, ckpt.dcp.Reader, async_stager=ckpt.dcp.AsyncStager()),
            run_save(0), run_save(own + own // 8 + (64 << 20))]
    for other in (orbax, torch_checkpointing) if RANKS == 1 else ():
        try:
            ways.append(other())
        except ImportError as error:
            print(f"left out: {error}")
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    say = print if RANK == 0 else drop
    say(f"{size / GIB:.2f} GiB in {len(state) * RANKS} tensors on {where}, torch {torch.__version__}, {os.cpu_count()} CPUs, "
        f"{RANKS} process{'es' if RANKS > 1 else ''}, {options.rounds} rounds")
    say(f"{'':36}{'blocks s':>10}{'total s':>10}{'GiB/s':>8}{'load s':>10}{'save of fio':>13}{'load of fio':>13}")
    try:
        for way in ways:
            if options.only in way.name and (way.group or RANKS == 1):
                try:
                    blocked, total, load, save_ratio, load_ratio = measure(way, state, directory, device, options.rounds, None if way is copy else fio)
                except KeyError as error:  # torch 2.11: its DefaultStager cannot copy types
                    say(f"{way.name:36}fails: {error!r}", flush=True)
                    continue
                say(f"{way.name:36}{blocked:10.3f}{total:10.3f}{size / GIB / total:8.2f}{load:10.3f}{save_ratio:13.2f}{load_ratio:13.2f}", flush=True)
                way.close()
    finally:
        if RANK == 0:
            shutil.rmtree(directory, ignore_errors=True)
        if RANKS > 1:
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
