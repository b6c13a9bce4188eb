#!/usr/bin/env python3
"""Times a save of many small tensors from Python, and how much of it is Python:

    CKPT_LIBRARY=build/release/lib/libckpt.so.1 bench/python_small_tensors.py --tensors 100000 /dev/shm

Rows: ckpt.Run.save of torch and of numpy arrays; dcp.save with ckpt.dcp.Writer, of which "Python" is only what the writer does, not
torch's planning. Columns, medians of the rounds in microseconds per tensor: "Python" and "library" (functions of libckpt), processor
time; and "call", wall time of the save until it is durable. The garbage collector stays on, as in training. Of a run of several ranks, each
with so many tensors of its own, on rank 0:

    torchrun --nproc-per-node 2 bench/python_small_tensors.py --tensors 50000 /dev/shm
"""
import argparse
import contextlib
import os
import pathlib
import shutil
import statistics
import sys
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import numpy  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

import ckpt.dcp  # noqa: E402
from ckpt import _library  # noqa: E402


RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Stopwatch:
    """Seconds of processor time in the functions that it wraps; calls inside another one that counts are not counted again."""

    def __init__(self):
        self.seconds = 0.0
        self._depth = 0

    def wrap(self, function):
        def timed(*arguments, **options):
            start = time.process_time()
            self._depth += 1
            try:
                return function(*arguments, **options)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.seconds += time.process_time() - start
        return timed


class TimedLibrary:
    """The library, with the time that its functions take."""

    def __init__(self, library, watch):
        for name, _, _ in _library._FUNCTIONS:
            setattr(self, name, watch.wrap(getattr(library, name)))


def measure(save, tensors, rounds, ours=None):
    """Medians of microseconds per tensor: in Python (of `ours`, else of the call), in the library, of the call."""
    times = []
    for step in range(1, rounds + 1):
        in_library.seconds = 0.0
        if ours is not None:
            ours.seconds = 0.0
        start, begin = time.process_time(), time.perf_counter()
        save(step)
        call, wall = time.process_time() - start, time.perf_counter() - begin
        python = (call if ours is None else ours.seconds) - in_library.seconds
        times.append((python, in_library.seconds, wall))
    return [statistics.median(column) / tensors * 1e6 for column in zip(*(times[1:] or times))]


def run_of(tree, path, stack):
    run = stack.enter_context(ckpt.Run(path, staging=1 << 30, group="world" if RANKS > 1 else None))
    return lambda step: run.save(step, tree, wait=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path, help="where to save; emptied at the end")
    parser.add_argument("--tensors", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=4, help="of each row; the first is dropped if there are more")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    count = options.tensors
    directory = options.directory / f"python_small_tensors.{os.getppid() if RANKS > 1 else os.getpid()}"
    directory.mkdir(parents=True, exist_ok=True)
    if RANKS > 1:
        dist.init_process_group("gloo")
    library = TimedLibrary(_library.library(), in_library)
    _library.library = lambda: library
    of_torch = {f"rank{RANK}.layers.{i // 10}.weight{i % 10}": torch.full((4, 2), float(i)) for i in range(count)}
    of_numpy = {name: tensor.numpy() for name, tensor in of_torch.items()}
    writer = ckpt.dcp.Writer(directory / "dcp")
    in_writer = Stopwatch()
    for name in ("prepare_local_plan", "prepare_global_plan", "write_data", "finish"):
        setattr(writer, name, in_writer.wrap(getattr(writer, name)))
    say = print if RANK == 0 else lambda *ignored, **options: None
    say(f"{count} tensors of 32 bytes in each of {RANKS} process{'es' if RANKS > 1 else ''}, torch {torch.__version__}, numpy {numpy.__version__}, Python {sys.version.split()[0]}, "
          f"{os.cpu_count()} CPUs, {options.rounds} rounds; microseconds per tensor")
    say(f"{'':28}{'Python':>10}{'library':>10}{'call':>10}")
    with contextlib.ExitStack() as stack:
        if RANKS > 1:
            stack.callback(dist.destroy_process_group)
        if RANK == 0:
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        rows = [("ckpt.Run.save, torch", run_of(of_torch, directory / "torch", stack), None),
                ("ckpt.Run.save, numpy", run_of(of_numpy, directory / "numpy", stack), None),
                ("dcp.save, ckpt.dcp.Writer", lambda step: dcp.save(of_torch, storage_writer=writer), in_writer)]
        for name, save, ours in rows:
            if options.only in name:
                say(f"{name:28}" + "".join(f"{each:10.2f}" for each in measure(save, count, options.rounds, ours)), flush=True)


in_library = Stopwatch()
if __name__ == "__main__":
    main()
