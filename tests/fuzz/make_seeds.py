"""Writes the seeds of the targets that take whole directories or parts of pickles, from genuine checkpoints.

    python3 tests/fuzz/make_seeds.py

Run it again when the form of an input changes (directory_input.hpp); the seeds in corpus/ are what it wrote.
"""
import json
import pathlib
import struct
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
MOST = 65536  # what tests/fuzz/run takes


def torch_file(path):
    """A torch.save file without its storages' bytes and checksums, or None where it is none."""
    if not zipfile.is_zipfile(path):
        return None
    storages, pickle = [], b""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = info.filename.partition("/")[2]
            if name == "data.pkl":
                pickle = archive.read(info)
            elif name.startswith("data/") and name[5:].isdigit():
                storages.append((int(name[5:]), info.file_size))
    if not pickle or len(storages) > 255 or any(size > MOST for _, size in storages):
        return None
    return bytes([len(storages)]) + b"".join(struct.pack("<HI", *storage) for storage in storages) + pickle


def directory(case, keep=lambda name: True):
    root, out = GOLDEN / case / "ckpt", b""
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        name = path.relative_to(root).as_posix()
        if not keep(name):
            continue
        as_torch = torch_file(path) if name.endswith((".pt", ".bin", ".pth", ".ckpt")) else None
        data = path.read_bytes() if as_torch is None else as_torch
        out += struct.pack("<BB", as_torch is not None, len(name)) + name.encode() + struct.pack("<I", len(data)) + data
    return out


def pickle_of(path):
    with zipfile.ZipFile(path) as archive:
        return archive.read(next(n for n in archive.namelist() if n.endswith("data.pkl")))


def write(target, name, data):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    if len(data) > MOST:
        print(f"too large: {target}/{name}: {len(data)} bytes")
    else:
        (folder / name).write_bytes(data)


def main():
    for case in ("zero0_bf16_dp2", "zero2_bf16_dp4", "zero3_fp32_dp3_tied_tiny", "tp2_dp2_zero1_fp32", "bf16opt_dp2",
                 "zero2_fp32_dp3_frozen", "zero3_bf16_dp3_frozen", "zero2_fp32_dp3_elastic"):
        write("deepspeed_directory", case, directory(f"deepspeed/{case}"))
    write("deepspeed_universal_directory", "zero2", directory("deepspeed/universal_from_zero2_bf16_dp4"))
    write("deepspeed_universal_directory", "zero3", directory("deepspeed/universal_from_zero3_bf16_dp4"))
    write("dcp_directory", "safetensors", directory("torch/dcp_safetensors"))
    write("dcp_directory", "fsdp2_hsdp_bf16", directory("torch/fsdp2_hsdp_bf16"))
    write("dcp_directory", "async", directory("torch/dcp_async", lambda name: not name.startswith("__1")))
    for case in ("rank_files_dtensor", "rank_files_placements", "pt_protocols", "pt_legacy", "fsdp1_sharded"):
        write("torch_directory", case, directory(f"torch/{case}"))
    for case in ("single", "empty_and_scalar", "dtypes"):
        write("safetensors_directory", case, directory(f"safetensors/{case}"))
    write("safetensors_directory", "slices", directory("torch/hf_sharded"))
    for rank in (0, 1, 3):
        for case in ("dtensor", "placements"):
            path = GOLDEN / f"torch/rank_files_{case}/ckpt/model_world_size_4_rank_{rank}.pt"
            write("dtensor", f"{case}_{rank}", bytes([rank]) + pickle_of(path))
    ranks = [(GOLDEN / f"torch/dcp_no_collectives/ckpt/__{rank}.metadata").read_bytes() for rank in (0, 1)]
    write("dcp_merge", "two_ranks", struct.pack("<H", len(ranks[0])) + ranks[0] + ranks[1])
    write("dcp_merge", "one_twice", struct.pack("<H", 65535) + ranks[0])
    write("placements", "steps", bytes([1, 3, 1, 6, 0, 0, 2, 0, 1, 2, 2, 1, 0, 12, 0, 2, 0, 9, 2, 0, 16, 3, 4, 5, 6]))
    write("placements", "fused", bytes([0, 1, 3, 4, 1, 0, 8, 4, 2, 5, 2, 1, 2, 4, 8, 8, 1, 0, 0xff] + [255] * 8))
    for case in ("0.9-small", "1.0-mesh"):
        manifest = json.loads((GOLDEN / f"ckpt/{case}/ckpt/manifest.json").read_text())
        for i, layout in enumerate(manifest.get("layouts", [])):
            write("layout", f"{case}_{i}", json.dumps(layout, separators=(",", ":")).encode())


main()
