"""Writes the seeds of the targets that take whole directories, parts of pickles or texts: from genuine checkpoints, and
of each form that a text may take.

    python3 tests/fuzz/make_seeds.py

Run it again when the form of an input changes (directory_input.hpp); the seeds in corpus/ are what it wrote.
"""
import io
import json
import pathlib
import struct
import tarfile
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


def archive(form):
    """A tar archive of small files, one of which has a name that needs a member of its own in all forms but ustar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, kind in (("./", tarfile.DIRTYPE), ("./weights/a.bin", tarfile.REGTYPE), ("./b", tarfile.LNKTYPE),
                           ("./c", tarfile.SYMTYPE), ("./" + "deep/" * 25 + "d" * (60 if form == tarfile.USTAR_FORMAT else 120),
                                                     tarfile.REGTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "./weights/a.bin" if kind in (tarfile.LNKTYPE, tarfile.SYMTYPE) else ""
            member.size = 5 if kind == tarfile.REGTYPE else 0
            member.mtime = 1.5 if form == tarfile.PAX_FORMAT else 1
            tar.addfile(member, io.BytesIO(b"bytes"))
    return out.getvalue()


def main():
    for name, form in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
        write("archive", name, archive(form))
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
    for name, text in FILTERS.items():
        write("filter", name, text.encode())
    for name, text in POLICIES.items():
        write("policy_toml", name, text.encode())
    for name, (tensor, rules) in MAP_RULES.items():
        write("map_rules", name, f"{tensor}\n".encode() + json.dumps({"ckpt-map": 1, "rules": rules}).encode())
    for name, lines in PROFILES.items():
        write("naming_profile", name, "\n".join(lines).encode() + b"\0" + json.dumps(MODEL).encode())
    for name, data in zstd_frames().items():
        write("zstd_stream", name, data)


PROFILES = {
    "attention": ["family a", "architecture A", "model_type a", "include base", "include rms", "include attention",
                  "include gated"],
    "experts": ["family b", "config num_experts = num_experts", "config freq = sparse_step(moe_layer_freq) else 1",
                "config shared = quotient(moe_shared, moe_ffn_hidden_size)", "include moe", "derive x = 4h"],
    "forms": ["family c", "prefix m.", "config a.b|a = hidden_size else 8", "args swiglu := true", "config c := [1]",
              "scope x.{l} = y.{l}", "tensor .qkv | .other [8, h] = fused(t(.c)) when a, not b  # transposed",
              "tensor v [V, h] = vocab(e)", "config s = llama3_scaling(use, factor)", "ignore *.inv_freq"],
}
MODEL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 5,
         "intermediate_size": 6, "num_experts": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}

FILTERS = {
    "texts": "kind == 'weights' and tier != \"nfs\" or run == 'a/b' and not state == 'verified'",
    "numbers": "step >= 1000 and series < 3 and generation != 2 and bytes <= 10GiB and age > 7d",
    "metrics": "metric.eval/loss < 0.5 or metric.nan == nan or metric.x >= -1e308",
    "nested": "not (((tag == 'eval') or (step == 5)) and not not (id == 'x'))",
}

POLICIES = {
    "full": """keep = [
  { id = "recent", last = 3 },
  { id = "period", every_steps = 10000, mode = "exact" },
  { id = "spaced", every = "6h", anchor = "oldest", max = 5 },
  { id = "gfs", hourly = 24, daily = 7, yearly = -1, keep_oldest_if_short = false },
  { id = "window", within = "36h", relative_to = "newest" },
  { id = "best", best = 3, metric = "eval/loss", mode = "min", missing = "keep", nan = "worst" },
  { id = "first", first = 1 },
  { id = "milestone", steps = [0, 1000, 50000] },
  { id = "tagged", tags_any = ["release", "eval"], where = "kind == 'weights' and tier == 'nfs'" },
]
[policy]
version = 1
name = "pretrain"
group_by = ["run"]
order = "series, step"
count = "exclusive"
tz = "+02:00"
drop_optimizer_after = "7d"
[guard]
newest = 2
min_age = "10m"
max_delete_fraction = 0.25
require_verified_successor = true
[pressure]
min_free = "10%"
headroom = "2.0 x last_size"
relax = ["gfs", "spaced", "window"]
never = ["best", "milestone"]
[trash]
ttl = "48h"
recycle = 2
""",
    "rules": """[[rule]]
name = "a"
runs = "a-*"
keep_last = 3
[[rule]]
keep_every_steps = 100
[guard]
newest = 1
""",
    "tables": "[[keep]]\nlast = 'all'\n[[keep]]\nmonthly = 12\n[pressure]\nmax_size = '1TiB'\n",
}

MAP_RULES = {
    "holds": ("_flat_param", [{"tensor": "_flat_param", "holds": [{"name": "w", "shape": [8, 4]}, {"padding": 3}]}]),
    "stars": ("layers.3.mlp.weight", [{"tensor": "layers.*.mlp.*", "join": 1}, {"tensor": "*.bias", "join": "same"}]),
    "names": ("module.a.b", [{"tensor": "module.*", "name": "*"}, {"tensor": "*a*b*", "name": "x*y*z*"}]),
}


def zstd_block(kind, size, data, last):
    return struct.pack("<I", size << 3 | kind << 1 | last)[:3] + data


def zstd_frames():
    """Frames by hand (RFC 8878): stored and repeated blocks, what is skipped, wide windows, a dictionary; and genuine
    items."""
    magic, skipped = struct.pack("<I", 0xFD2FB528), struct.pack("<II", 0x184D2A55, 5) + b"skip!"
    stored, repeated = 0, 1
    single = magic + b"\x20\x0c" + zstd_block(stored, 12, b"twelve bytes", 1)
    window = magic + b"\x00\x58" + zstd_block(repeated, 100000, b"a", 0) + zstd_block(stored, 3, b"end", 1)
    many = magic + b"\x00\x58" + b"".join(zstd_block(repeated, 128 << 10, b"z", n == 39) for n in range(40))
    out = {
        "stored": single,
        "repeated": window,
        "several": single + skipped + window + single,
        "bomb": many,
        "wide": magic + b"\x00\xf8" + zstd_block(stored, 0, b"", 1),
        "dictionary": magic + b"\x21\x07\x04" + zstd_block(stored, 4, b"dict", 1),
        "checksum": magic + b"\x24\x04" + zstd_block(stored, 4, b"sums", 1) + b"\0\0\0\0",
        "cut": window[:-4],
    }
    genuine = b"".join(p.read_bytes() for p in sorted((GOLDEN / "torch/dcp_zstd/ckpt").glob("*.distcp")))
    at = genuine.find(magic)
    for number in range(3):
        end = genuine.find(magic, at + 4)
        out[f"item_{number}"] = genuine[at : end if end > 0 else len(genuine)][:MOST]
        at = end
        if at < 0:
            break
    return out


main()
