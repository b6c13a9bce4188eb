"""Measures ckpt against fio on this disk, in interleaved pairs, and prints the rows of bench/RESULTS.md.

    python bench/make_sources.py DATA/zero2 --case zero2 --gib 4          (likewise the others)
    python bench/make_megatron.py DATA/megatron --gib 4
    python bench/make_metadata.py DATA/dcp-256 --case dcp           (for metadata; what it takes is in its code)
    python bench/bench.py --data DATA --work SCRATCH [--rounds 9] [CASE ...]

Cases: convert (zero2, zero3, dcp, universal, dcp-2d, model.pt), recut, hdf5, verify, inspect, metadata, help, ranks, linear,
tensors, memory, stock, megatron (with megatron-core), offload, save, recycle, peers. Default: all that DATA holds. A ratio is the median over interleaved pairs
(fio, ckpt) of fio's time over ckpt's for the same bytes, both durable; pairs whose fio readings differ by more than 10
% from the median are dropped and counted. The page cache is dropped
before every run. Needs fio and root (for the caches and huge pages); prints a message if they are missing.
"""
import argparse
import json
import os
import pathlib
import random
import re
import resource
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def drop_caches():
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        pass


def reserve_huge_pages(count):
    """For fio's buffers only: ckpt runs without huge pages, as on a user's machine. Returns their number."""
    knob = pathlib.Path("/proc/sys/vm/nr_hugepages")
    try:
        knob.write_text(str(count))
        return int(knob.read_text())
    except OSError:
        return 0


def run(command, **kw):
    start = time.monotonic()
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kw)
    seconds = time.monotonic() - start
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return seconds, done.stdout


class Bench:
    def __init__(self, args):
        self.args = args
        self.ckpt = pathlib.Path(args.ckpt)
        self.work = pathlib.Path(args.work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.memory = "mmaphuge" if reserve_huge_pages(48) >= 32 else "malloc"
        reserve_huge_pages(0)

    # --- fio ---------------------------------------------------------------------------------------------------
    def fio_job(self, name, rw, path, size, extra=()):
        return ["--name=" + name, "--rw=" + rw, f"--filename={path}", f"--size={size}", *extra]

    def fio(self, *jobs):
        common = ["fio", "--direct=1", "--ioengine=io_uring", "--bs=4m", "--iodepth=8", "--mem=" + self.memory,
                  "--output-format=json"]
        drop_caches()
        reserve_huge_pages(48)
        _, out = run(common + [word for job in jobs for word in job])
        reserve_huge_pages(0)
        report = json.loads(out[out.index("{"):])
        return max(max(job["read"]["runtime"], job["write"]["runtime"]) for job in report["jobs"]) / 1000

    def source_file(self, size):
        """A file of random bytes that fio reads."""
        path = self.work / "fio-read"
        if not path.exists() or path.stat().st_size < size:
            run(["fio", "--name=fill", "--rw=write", f"--filename={path}", f"--size={size}", "--bs=4m", "--direct=1",
                 "--ioengine=io_uring", "--iodepth=8", "--refill_buffers", "--end_fsync=1"])
        return path

    def fio_read_write(self, read_bytes, write_bytes):
        source = self.source_file(read_bytes)
        target = self.work / "fio-write"
        target.unlink(missing_ok=True)
        block = 4 << 20
        seconds = self.fio(
            self.fio_job("read", "read", source, read_bytes // block * block),
            self.fio_job("write", "write", target, write_bytes // block * block,
                         ["--fallocate=native", "--end_fsync=1"]))
        target.unlink()
        return seconds

    def fio_read(self, size):
        block = 4 << 20
        return self.fio(self.fio_job("read", "read", self.source_file(size), size // block * block))

    # --- ckpt --------------------------------------------------------------------------------------------------
    def convert(self, source, target, *flags, launcher=()):
        self.remove(target)
        drop_caches()
        seconds, out = run([*launcher, self.ckpt, "convert", source, target, "--json", *flags])
        return seconds, json.loads(out)["data"]

    def remove(self, path):
        shutil.rmtree(path, ignore_errors=True)
        pathlib.Path(path).unlink(missing_ok=True)

    def bytes_of(self, path):
        files = [path] if path.is_file() else path.rglob("*")
        return sum(f.stat().st_size for f in files if f.is_file())

    def pairs(self, label, reference, subject):
        """Interleaved rounds of (fio seconds, ckpt seconds); prints and returns the median ratio."""
        return self.row(label, [(reference(), subject()) for _ in range(self.args.rounds)])

    def row(self, label, rounds):
        middle = statistics.median(f for f, _ in rounds)
        kept = [(f, s) for f, s in rounds if abs(f - middle) <= 0.1 * middle]
        ratios = sorted(f / s for f, s in (kept or rounds))
        row = (f"| {label} | {statistics.median(ratios):.2f} | {ratios[0]:.2f}-{ratios[-1]:.2f} | "
               f"{len(kept)} of {len(rounds)} | {statistics.median(f for f, _ in rounds):.2f} s | "
               f"{statistics.median(s for _, s in rounds):.2f} s |")
        print(row, flush=True)
        return statistics.median(ratios)

    # --- cases -------------------------------------------------------------------------------------------------
    def case_convert(self):
        for name, target in (("zero2", "out.safetensors"), ("zero3", "out.safetensors"), ("dcp", "out.ckpt"),
                             ("universal", "out.safetensors"), ("dcp-2d", "out.safetensors"), ("model.pt", "out.safetensors")):
            source = self.args.data / name
            if not source.exists():
                print(f"skipped {name}: {source} is not there")
                continue
            out = self.work / target
            _, first = self.convert(source, out)
            read = self.bytes_of(source)
            written = first["target"]["bytes"]
            self.pairs(f"convert {name} ({read / 2**30:.2f} GiB, {first['source']['read_bytes'] / read:.2f} of it read) "
                       f"to {target} ({written / 2**30:.2f} GiB)",
                       lambda: self.fio_read_write(read, written), lambda: self.convert(source, out)[0])
            self.remove(out)

    def case_recut(self):
        """Training checkpoints, read, cut again and written, by one process and by four ranks."""
        four = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4")
        jobs = (("zero2", "recut", ("--to", "deepspeed", "--zero-stage", "3", "--dp", "6"), "ZeRO-3 of 6"),
                ("zero3", "recut.pt", (), "one .pt"),
                ("dcp", "recut", ("--to", "dcp", "--ranks", "3"), "DCP of 3 ranks"),
                ("megatron", "recut", ("--tp", "2", "--pp", "4", "--allow-skipped"), "TP 2 x PP 4"),
                ("megatron", "recut", ("--to", "safetensors", "--names", "hf", "--only", "weights"), "Hugging Face weights"))
        for name, target, flags, what in jobs:
            source, out = self.args.data / name, self.work / target
            if not source.exists():
                print(f"skipped {name}: {source} is not there")
                continue
            for launcher in ((), four):
                _, first = self.convert(source, out, *flags, "--memory", "256M", launcher=launcher)
                read = min(self.bytes_of(source), first["source"]["read_bytes"])
                written = self.bytes_of(out)
                self.remove(out)

                def ours():
                    seconds, _ = self.convert(source, out, *flags, "--memory", "256M", launcher=launcher)
                    self.remove(out)  # fio needs its space
                    return seconds

                by = " by 4 ranks" if launcher else ""
                self.pairs(f"{name} ({read / 2**30:.2f} GiB) to {what} ({written / 2**30:.2f} GiB){by}, peak "
                           f"{first['memory']['peak_bytes'] / 2**20:.0f} MiB",
                           lambda: self.fio_read_write(read, written), ours)

    def case_hdf5(self):
        """A contiguous HDF5 file, made from the DCP source, to one safetensors file."""
        source, out = self.work / "source.h5", self.work / "out.safetensors"
        self.convert(self.args.data / "dcp", source)
        size = source.stat().st_size
        self.pairs(f"convert HDF5 ({size / 2**30:.2f} GiB, contiguous) to {out.name}",
                   lambda: self.fio_read_write(size, size), lambda: self.convert(source, out)[0])
        self.remove(source)
        self.remove(out)

    def case_verify(self):
        source = self.args.data / "dcp"
        out = self.work / "verify.ckpt"
        self.convert(source, out)
        size = self.bytes_of(out)

        def verify():
            drop_caches()
            return run([self.ckpt, "verify", out])[0]

        self.pairs(f"verify universal ({size / 2**30:.2f} GiB)", lambda: self.fio_read(size), verify)
        self.remove(out)

    def case_stock(self):
        """The frameworks' own scripts, against the same conversion by ckpt."""
        to_universal = ("-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state", "--input_folder")
        for name in ("zero2", "zero3"):
            source = self.args.data / name
            script = source / "zero_to_fp32.py"
            if not script.exists():
                continue
            self.against_script(f"{name}: zero_to_fp32.py over ckpt --only weights", source, "w.safetensors",
                                ("--only", "weights"),
                                lambda out, s=source, p=script: (p, s, out, "--safe_serialization"))
            tag = source / (source / "latest").read_text().strip()
            self.against_script(f"{name}: ds_to_universal.py over ckpt --to deepspeed-universal", source, "universal",
                                ("--to", "deepspeed-universal"),
                                lambda out, t=tag: (*to_universal, t, "--output_folder", out))
        source = self.args.data / "dcp"
        if source.exists():
            self.against_script("dcp: dcp_to_torch over ckpt convert to .pt", source, "w.pt", (), lambda out: (
                "-m", "torch.distributed.checkpoint.format_utils", "dcp_to_torch", source, out))

    def against_script(self, label, source, target, flags, words):
        """Pairs of (script with a sync, ckpt); the peaks are those of the largest process of each."""
        out, ours = self.work / "stock", self.work / target

        def stock():
            self.remove(out)
            drop_caches()
            seconds = run([sys.executable, *words(out)])[0]
            start = time.monotonic()
            os.sync()
            return seconds + time.monotonic() - start

        peak = self.convert(source, ours, *flags)[1]["memory"]["peak_bytes"]
        self.pairs(label, stock, lambda: self.convert(source, ours, *flags)[0])
        of_script = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(f"peak: ckpt {peak / 2**20:.0f} MiB; the largest process of all that ran {of_script / 2**20:.0f} MiB")
        self.remove(out)
        self.remove(ours)

    def case_megatron(self):
        """A job of megatron-core that loads a run at another size and saves what each rank got, against ckpt for the same size."""
        source, tensor, pipeline = self.args.data / "megatron", 2, 4
        if not source.exists():
            print(f"skipped megatron: {source} is not there")
            return
        whole, out, ours = self.work / "whole", self.work / "ranks", self.work / "recut"
        self.convert(source, whole, "--to", "megatron", "--allow-skipped")
        iteration, = whole.glob("iter_*")
        loaded = []

        def of_megatron():
            self.remove(out)
            out.mkdir()
            drop_caches()
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            start = time.monotonic()
            jobs = [subprocess.Popen([sys.executable, ROOT / "tests/interop/megatron_ranks.py", *map(str, (rank, tensor, pipeline, 1, port)), iteration, out],
                                     env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                    for rank in range(tensor * pipeline)]
            if any(job.wait() for job in jobs):
                sys.exit("megatron-core failed")
            os.sync()
            loaded.append(self.bytes_of(out))
            return time.monotonic() - start

        flags = ("--tp", tensor, "--pp", pipeline, "--memory", "256M", "--allow-skipped")
        peak = self.convert(whole, ours, *flags)[1]["memory"]["peak_bytes"]
        self.pairs(f"megatron-core's {tensor * pipeline} ranks over ckpt, {self.bytes_of(iteration) / 2**30:.2f} GiB to TP {tensor} x PP {pipeline}", of_megatron,
                   lambda: self.convert(whole, ours, *flags)[0])
        of_rank = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(f"megatron-core: {loaded[-1] / 2**30:.2f} GiB saved; peak: ckpt {peak / 2**20:.0f} MiB; the largest rank {of_rank / 2**20:.0f} MiB")
        for path in (whole, out, ours):
            self.remove(path)

    def case_memory(self):
        for name in ("zero2", "zero3", "dcp", "dcp-16"):
            source = self.args.data / name
            if not source.exists():
                continue
            out = self.work / "memory.safetensors"
            seconds, report = self.convert(source, out, "--memory", "256M")
            print(f"memory: {name} {report['source']['read_bytes'] / 2**30:.2f} GiB with --memory 256M: peak resident "
                  f"{report['memory']['peak_bytes'] / 2**20:.0f} MiB, {seconds:.2f} s", flush=True)
            self.remove(out)

    def case_offload(self):
        """The offload store's write, overwrite and read against fio's; neither side syncs. One fio and one store per
        round."""
        program = self.ckpt.parent / "bench_offload"
        size = 2 << 30
        path = self.work / "fio-offload"
        rounds = {"write, fresh files": [], "write again": [], "read": []}
        for _ in range(self.args.rounds):
            path.unlink(missing_ok=True)
            fio = [self.fio(self.fio_job("fresh", "write", path, size, ["--fallocate=native"])),
                   self.fio(self.fio_job("again", "write", path, size, ["--overwrite=1"])),
                   self.fio(self.fio_job("read", "read", path, size))]
            path.unlink()
            drop_caches()
            done = json.loads(run([program, self.work / "swap", str(size >> 20)])[1])
            assert done["equal"] and done["bytes"] == size and done["read_bytes"] >= size, done
            for pair, reference, key in zip(rounds.values(), fio, ("write_s", "overwrite_s", "read_s")):
                pair.append((reference, done[key]))
        for label, measured in rounds.items():
            self.row(f"offload store, {label} ({size / 2**30:.0f} GiB, tensors of 64 MiB)", measured)
        self.remove(self.work / "swap")

    def case_save(self):
        """A save of 4 GiB through the library into fresh files against fio's write; the time of commit() with staging; the load."""
        program = self.ckpt.parent / "bench_save"
        size = 4 << 30
        store = self.work / "store"

        def fio():
            # In new directories, like the files of a save: ext4 places a file by its directory, and blocks that were
            # just freed are faster.
            tree = self.work / "fio-store"
            self.remove(tree)
            directory = tree / "run" / f"step.partial-{random.getrandbits(64):016x}" / "shards" / "weights"
            directory.mkdir(parents=True)
            seconds = self.fio(self.fio_job("fresh", "write", directory / "file", size,
                                            ["--fallocate=native", "--end_fsync=1"]))
            self.remove(tree)
            return seconds

        def save(staging_mib):
            self.remove(store)
            drop_caches()
            return json.loads(run([program, "save", store / "run", str(size >> 20), str(staging_mib)])[1])

        self.pairs(f"save, synchronous ({size / 2**30:.0f} GiB)", fio, lambda: save(0)["durable_s"])

        def load():
            drop_caches()
            done = json.loads(run([program, "load", store / "run", str(size >> 20)])[1])
            assert done["equal"] and done["read_bytes"] <= 1.001 * size, done
            return done["load_s"]

        self.pairs(f"load, every hash compared ({size / 2**30:.0f} GiB)", lambda: self.fio_read(size), load)
        staged = [save((size >> 20) + 256) for _ in range(self.args.rounds)]
        ratios = sorted(s["commit_s"] / s["copy_s"] for s in staged)
        middle = {key: statistics.median(s[key] for s in staged) for key in staged[0]}
        print(f"commit() with staging for all of it: {middle['commit_s']:.3f} s, best two-thread copy {middle['copy_s']:.3f} s, "
              f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f}); durable after {middle['durable_s']:.2f} s; "
              f"training steps until then take {middle['steps_slower']:.2f} times as long")
        self.remove(store)
        mpi = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n"]
        seconds = {1: [], 8: []}
        for _ in range(min(self.args.rounds, 5)):
            for ranks in seconds:
                self.remove(store)
                drop_caches()
                seconds[ranks].append(json.loads(run([*mpi, str(ranks), program, "ranks", store / "run", "2048"])[1])["best_s"])
        one, eight = (statistics.median(seconds[n]) for n in (1, 8))
        print(f"save of 2 GiB: 1 rank {one:.2f} s, 8 ranks {eight:.2f} s: {100 * (eight / one - 1):+.1f} %")
        self.remove(store)
        run([program, "save", store / "run", "1024", "0"])
        found = {1: [], 2: []}  # each rank reads; they divide and exchange
        for _ in range(min(self.args.rounds, 5)):
            for way in found:
                drop_caches()
                lines = run([*mpi, "4", program, "replicas", store / "run", "1024", str(way)])[1].splitlines()
                ranks = [json.loads(line) for line in lines if line.startswith("{")]
                assert len(ranks) == 4 and sum(r["needed_bytes"] for r in ranks) == 4 << 30, lines
                found[way].append((max(r["load_s"] for r in ranks), sum(r["read_bytes"] for r in ranks)))
        for way, label in ((1, "each reads"), (2, "divided and exchanged")):
            seconds, read = (statistics.median(column) for column in zip(*found[way]))
            print(f"load of 1 GiB that 4 ranks hold alike, {label}: {seconds:.2f} s, {read / 2**30:.2f} GiB read")
        self.remove(store)
        small = json.loads(run([program, "small", store / "run", "30"])[1])
        print(f"a save of 1 MiB: median {small['median_s'] * 1000:.1f} ms, least {small['least_s'] * 1000:.1f} ms")
        self.remove(store)

    def case_recycle(self):
        """A save of 4 GiB into retired files (trash.recycle) against fio's overwrite; a fresh save and fio's fresh write beside
        them in every round, so that both gains come from one run. They alternate in order, and none begins before the
        disk has discarded removed blocks."""
        program = self.ckpt.parent / "bench_save"
        size = 4 << 30
        fresh, store = self.work / "fresh", self.work / "recycled"
        tree = self.work / "fio-recycle"
        again = tree / "again"
        for path in (fresh, store, tree):
            self.remove(path)
        tree.mkdir(parents=True)
        store.mkdir()
        (store / "ckpt.toml").write_text('[trash]\nrecycle = 1\npurge_early_when_free_below = "0%"\n'
                                         '[[rule]]\nruns = "*"\nkeep = { last = 1 }\n')

        def fio(path, *extra):
            path.parent.mkdir(parents=True, exist_ok=True)
            return self.fio(self.fio_job("write", "write", path, size, [*extra, "--end_fsync=1"]))

        def save(into, step):
            drop_caches()
            return json.loads(run([program, "save", into / "run", str(size >> 20), "0", str(step)])[1])["durable_s"]

        def inodes():
            return {p.stat().st_ino for p in (store / ".ckpt/recycle").iterdir()}

        def retire():
            run([self.ckpt, "prune", "--store", store, "--apply", "-y"])
            return inodes()

        fio(again, "--fallocate=native")
        save(store, 1)
        save(store, 2)
        rounds = []
        for step in range(3, 3 + self.args.rounds):
            retired = retire()
            assert retired, "nothing was retired: is this ext4 or XFS?"
            directory = tree / f"step.partial-{random.getrandbits(64):016x}"
            turns = {"fio_fresh": lambda: fio(directory / "file", "--fallocate=native"),
                     "saved_fresh": lambda: save(fresh, 1),
                     "fio_again": lambda: fio(again, "--overwrite=1"),
                     "saved_again": lambda: save(store, step)}
            took = {}
            for name in (turns if step % 2 else reversed(turns)):
                took[name] = turns[name]()
                for path in (directory, fresh):
                    if path.exists():
                        self.remove(path)
                        os.sync()
                        time.sleep(2)
            assert not inodes() & retired, "retired files were not taken"
            rounds.append([took[name] for name in ("fio_fresh", "saved_fresh", "fio_again", "saved_again")])
        gib = f"({size / 2**30:.0f} GiB)"
        self.row(f"save into fresh files {gib}", [r[:2] for r in rounds])
        self.row(f"save into retired files, over fio overwrite {gib}", [r[2:] for r in rounds])
        theirs, ours = (statistics.median(r[i] / r[i + 2] for r in rounds) for i in (0, 1))
        print(f"gain over fresh files in the same rounds: fio {theirs:.2f}, save {ours:.2f}", flush=True)
        for path in (fresh, store, tree):
            self.remove(path)

    def case_peers(self):
        """torch.save, dcp.save and safetensors' save_file, each with fsync, on a state of 4 GiB; bench_save beside them."""
        program = self.ckpt.parent / "bench_save"
        store, out = self.work / "store", self.work / "peer"
        code = {
            "torch.save": "torch.save(state, out); sync(out)",
            "dcp.save": "dcp.save(state, storage_writer=dcp.FileSystemWriter(out, thread_count=2, sync_files=True))",
            "safetensors save_file": "save_file(state, out); sync(out)",
        }
        script = """
import os, sys, time, torch, torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
def sync(path):
    fd = os.open(path, os.O_RDONLY); os.fsync(fd); os.close(fd)
out = sys.argv[1]
state = {f"layers.{i}.weight": torch.full((16 << 20,), float(i)) for i in range(64)}
start = time.monotonic()
%s
print(time.monotonic() - start)
"""
        for name, line in code.items():
            theirs, ours = [], []
            for _ in range(min(self.args.rounds, 5)):
                self.remove(out)
                drop_caches()
                theirs.append(float(run([sys.executable, "-W", "ignore", "-c", script % line, out])[1]))
                self.remove(out)
                self.remove(store)
                drop_caches()
                ours.append(json.loads(run([program, "save", store / "run", "4096", "0"])[1])["durable_s"])
            self.remove(store)
            ratios = sorted(t / o for t, o in zip(theirs, ours))
            print(f"| {name} | {statistics.median(theirs):.2f} s | {statistics.median(ours):.2f} s | "
                  f"{statistics.median(ratios):.1f} ({ratios[0]:.1f}-{ratios[-1]:.1f}) |", flush=True)

    def case_inspect(self):
        directory = self.work / "shards"
        directory.mkdir(exist_ok=True)
        weight_map = {}
        for i in range(200):
            header = {f"layer.{i}.{j}.weight": {"dtype": "F32", "shape": [16, 16], "data_offsets": [j * 1024, j * 1024 + 1024]}
                      for j in range(6)}
            text = json.dumps(header).encode()
            name = f"model-{i + 1:05d}-of-00200.safetensors"
            (directory / name).write_bytes(struct.pack("<Q", len(text)) + text + bytes(6 * 1024))
            weight_map.update({key: name for key in header})
        (directory / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {"total_size": 200 * 6144}, "weight_map": weight_map}))
        times = sorted(run([self.ckpt, "inspect", directory])[0] for _ in range(21))
        print(f"inspect of 200 shards, warm: median {times[10] * 1000:.1f} ms ({times[0] * 1000:.1f}-{times[-1] * 1000:.1f})")
        self.remove(directory)

    def case_metadata(self):
        """Opening large metadata, warm: whole processes (`ckpt inspect`), and the parsers alone (bench_metadata)."""
        for name in ("dcp-256", "deepspeed-256", "dcp-200mb"):
            source = self.args.data / name
            if not source.exists():
                print(f"skipped {name}: {source} is not there")
                continue
            times, peaks = [], []
            for _ in range(11 if name != "dcp-200mb" else 5):
                seconds, _ = run([self.ckpt, "inspect", source])
                times.append(seconds)
                peaks.append(self.peak_of([self.ckpt, "inspect", source]))
            times.sort()
            print(f"inspect of {name}, warm: median {times[len(times) // 2]:.3f} s ({times[0]:.3f}-{times[-1]:.3f}), "
                  f"peak resident {max(peaks) / 2**20:.0f} MiB")
            if (source / ".metadata").exists():
                done = json.loads(run([self.ckpt.parent / "bench_metadata", source / ".metadata"])[1])
                print(f"  .metadata of {done['bytes'] / 1e6:.1f} MB, {done['entries']} entries, {done['items']} items: pickle "
                      f"{done['pickle_s']:.3f} s ({done['bytes'] / done['pickle_s'] / 1e6:.0f} MB/s), all of it {done['parse_s']:.3f} s")

    def peak_of(self, command):
        """Peak resident bytes of one run."""
        process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: exit {process.returncode}")
        return usage.ru_maxrss * 1024

    def case_help(self):
        times = sorted(run([self.ckpt, "--help"])[0] for _ in range(21))
        print(f"--help: median {times[10] * 1000:.1f} ms ({times[0] * 1000:.1f}-{times[-1] * 1000:.1f})")

    def case_ranks(self):
        """One rank against four on the same bytes; the clock is the report's own, which starts after MPI_Init."""
        source = self.args.data / "zero2"
        out = self.work / "ranks.safetensors"
        mpi = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n"]
        seconds = {1: [], 4: []}
        for _ in range(self.args.rounds):
            for ranks in seconds:
                seconds[ranks].append(self.convert(source, out, "--threads", "1" if ranks > 1 else "2",
                                                   launcher=[*mpi, str(ranks)])[1]["elapsed_s"])
        one, four = (statistics.median(seconds[n]) for n in (1, 4))
        print(f"ranks: 1 rank {one:.2f} s, 4 ranks {four:.2f} s: {100 * (four / one - 1):+.1f} %")
        self.remove(out)

    def case_linear(self):
        for name in ("dcp-1", "dcp", "dcp-16"):
            source = self.args.data / name
            if not source.exists():
                continue
            out = self.work / "linear.safetensors"
            runs = [self.convert(source, out) for _ in range(3)]
            seconds = statistics.median(s for s, _ in runs)
            gib = runs[0][1]["source"]["read_bytes"] / 2**30
            print(f"linear: {gib:.2f} GiB in {seconds:.2f} s: {gib / seconds:.2f} GiB/s", flush=True)
            self.remove(out)

    def case_tensors(self):
        """100,000 tensors in one file: the cost of planning."""
        path = self.work / "many.safetensors"
        count = 100_000
        header = {f"model.layers.{i // 100}.part{i % 100}.weight": {"dtype": "F32", "shape": [8], "data_offsets": [32 * i, 32 * i + 32]}
                  for i in range(count)}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(struct.pack("<Q", len(text)) + text + os.urandom(32 * count))
        times = sorted(run([self.ckpt, "convert", path, self.work / "never.safetensors", "-n"])[0] for _ in range(5))
        print(f"plan of {count} tensors (convert -n): median {times[2]:.2f} s")
        times = sorted(self.convert(path, self.work / "many-out.ckpt")[0] for _ in range(3))
        print(f"convert of {count} tensors to universal: median {times[1]:.2f} s")
        self.remove(self.work / "many-out.ckpt")
        path.unlink()

    def conditions(self):
        cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
        print(f"machine: {os.cpu_count()} x {cpu.group(1) if cpu else 'unknown CPU'}, Linux {os.uname().release}, "
              f"load {os.getloadavg()[0]:.1f}; fio buffers: {self.memory}; "
              f"file system: {run(['stat', '-f', '-c', '%T', self.work])[1].strip()}")
        print("| job | ckpt over fio (median) | spread | pairs kept | fio | ckpt |\n|---|---|---|---|---|---|")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--ckpt", default=ROOT / "build/release/bin/ckpt")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    bench = Bench(args)
    bench.conditions()
    for case in args.cases or ["convert", "recut", "verify", "stock", "memory", "inspect", "help", "ranks", "linear", "tensors", "offload", "save"]:
        getattr(bench, "case_" + case)()


if __name__ == "__main__":
    main()
