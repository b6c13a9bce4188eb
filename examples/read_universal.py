#!/usr/bin/env python3
"""Reads a universal checkpoint in layout `whole` (what `ckpt convert --to ckpt` writes) and compares every hash:

    read_universal.py CHECKPOINT                lists its tensors
    read_universal.py CHECKPOINT NAME OUT.npy   writes one tensor as an array

Written from src/format/FORMAT.md alone; check numbers are those of its section 10. Needs numpy, and uses the module
xxhash if it is installed. As a library, call `read`: it returns every tensor by name, and the rows of objects.json."""
import json
import math
import os
import re
import struct
import sys

import numpy as np

try:
    import xxhash

    def xxh3_128(data):
        return xxhash.xxh3_128(data).digest()
except ImportError:
    from xxh3 import xxh3_128

LEAF = 4 << 20
CLASSES = ("weights", "optim", "blobs", "objects", "index")
CLASS_OF = {"param": 0, "buffer": 0, "slot": 1, "blob": 2}
BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0",
        "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8), **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
        **dict.fromkeys(("I32", "U32", "F32"), 32), **dict.fromkeys(("C64", "F64", "I64", "U64"), 64)}
NUMPY = {"BOOL": "?", "F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8", "U8": "u1", "U16": "<u2", "U32": "<u4",
         "U64": "<u8", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}


class Refused(Exception):
    """A failed check: the exit code that FORMAT.md gives it (12 newer, 13 missing, 15 corrupt), and what is wrong."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def must(true, code, text):
    if not true:
        raise Refused(code, text)


def strict_json(text):
    def members(pairs):
        must(len(dict(pairs)) == len(pairs), 15, "duplicate JSON member")
        return dict(pairs)
    return json.loads(text.decode("utf-8"), object_pairs_hook=members)


def load(root, path):
    try:
        with open(os.path.join(root, path), "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise Refused(13, f"{path} is missing") from None


def natural(value):
    """Section 1: larger integers are decimal text."""
    return int(value)


def read_manifest(data):
    seal = data[-43:-35] == b'"xxh3":"' and data[-3:] == b'"}\n'
    must(data.startswith(b'{"format":"ckpt",') and seal, 15, "check 2: not a manifest, or truncated")
    must(xxh3_128(data[:-35]).hex().encode() == data[-35:-3], 15, "check 3: manifest.json is damaged")
    manifest = strict_json(data)
    version = manifest["version"]
    must(version == "0.9" or version.startswith("1."), 12, f"check 5: version {version}")
    must(not manifest["features"]["required"], 12, "check 6: a required feature")
    must(all(layout["kind"] == "whole" for layout in manifest["layouts"]), 12, "check 7: a layout other than whole")
    must(set(manifest.get("dropped", [])) <= {"optim"}, 12, "check 8: a dropped class other than optim")
    for row in manifest["tensors"]:
        must(row["dtype"] in BITS, 12, f"check 17: dtype {row['dtype']}")
        must(row["role"] in CLASS_OF, 12, f"check 18: role {row['role']}")
    return manifest


def read_sums(root, manifest):
    """Section 5: (class, volume) -> path, size, data begin and leaves of every file. Compares the roots."""
    data = load(root, "sums.bin")
    must((len(data), xxh3_128(data).hex()) == (natural(manifest["sums"]["bytes"]), manifest["sums"]["xxh3"]), 15,
         "check 26: sums.bin is damaged")
    magic, major, minor, shift, checkpoint, count, _ = struct.unpack_from("<8sHHI16sQQ", data)
    must(magic == b"CKPTSUMS", 15, "check 28: not a table of hashes")
    must((major == 1 or (major, minor) == (0, 9)) and shift == 22, 12, "check 27: unsupported version of sums.bin")
    must(checkpoint.hex() == manifest["id"], 15, "check 29: sums.bin belongs to another checkpoint")
    files, leaf = {}, 64 + 64 * count
    for at in range(64, leaf, 64):
        kind, writer, volume, _, size, begin, _, _, root_hash = struct.unpack_from("<IIIIQQQQ16s", data, at)
        must(kind < len(CLASSES), 12, "check 30: an unknown class")
        leaves = data[leaf:leaf + 16 * -(-size // LEAF)]
        leaf += len(leaves)
        path = (f"shards/{CLASSES[kind]}/" if kind < 2 else "blobs/") + f"{writer:05}-{volume:05}.safetensors"
        path = {3: "blobs/objects.json", 4: f"index/{writer:05}.bin"}.get(kind, path).encode()
        said = b"ckpt.root.1\0" + checkpoint + struct.pack("<I", len(path)) + path + struct.pack("<Q", size) + leaves
        must(xxh3_128(said) == root_hash, 15, f"check 53: the root of {path.decode()} is wrong")
        files[kind, volume] = path.decode(), size, begin, leaves
    return files


def read_file(root, path, size, leaves):
    data = load(root, path)
    must(len(data) == size, 15, f"check 34: {path} has the wrong size")
    for at in range(0, size, LEAF):
        must(xxh3_128(data[at:at + LEAF]) == leaves[at // LEAF * 16:][:16], 15, f"check 60: {path} is damaged at {at}")
    return data


def array(row, data):
    """The tensor as a numpy array; plain bytes, in one dimension, if numpy lacks the dtype (BF16, F8, F4, F6)."""
    shape = [natural(size) for size in row["shape"]]
    if row["dtype"] in NUMPY:
        return np.frombuffer(data, NUMPY[row["dtype"]]).reshape(shape)
    return np.frombuffer(data, np.uint8)


def read(root):
    """The manifest, arrays by name (aliases too), and the rows of objects.json."""
    must(not re.search(r"\.partial-[0-9a-f]{32}$", os.path.abspath(root)), 13, "check 1: a save that never finished")
    manifest = read_manifest(load(root, "manifest.json"))
    files = read_sums(root, manifest)
    dropped = {CLASSES.index(name) for name in manifest.get("dropped", [])}
    rows, tensors, objects = {}, {}, []
    for row in manifest["tensors"]:
        rows.setdefault((CLASS_OF[row["role"]], row.get("volume", 0)), []).append(row)
    for key, (path, size, begin, leaves) in files.items():
        if key[0] in dropped:
            continue
        data = read_file(root, path, size, leaves)
        if key[0] == 3:
            objects = strict_json(data)["objects"]
            continue
        entries = []
        for row in rows.pop(key, []):
            count = math.prod(natural(size) for size in row["shape"]) * BITS[row["dtype"]] // 8
            alignment = min(12, (count & -count).bit_length() - 1) if count else 12
            entries.append((-alignment, row["name"].encode(), count, row))
        for _, _, count, row in sorted(entries, key=lambda entry: entry[:2]):  # section 4.4
            tensors[row["name"]] = array(row, data[begin:begin + count])
            begin += count
        must(begin == size, 15, f"check 35: {path} is not as long as its tensors")
    must({key[0] for key in rows} <= dropped, 15, "check 35: tensors without a file")
    tensors.update({row["name"]: tensors[row["target"]] for row in manifest["aliases"] if row["target"] in tensors})
    return manifest, tensors, objects


if __name__ == "__main__":
    try:
        manifest, tensors, objects = read(sys.argv[1])
        if len(sys.argv) > 3:
            np.save(sys.argv[3], tensors[sys.argv[2]])
        else:
            for name, values in tensors.items():
                print(name, values.dtype, list(values.shape))
    except Refused as refused:
        sys.exit(print(f"{sys.argv[1]}: {refused}", file=sys.stderr) or refused.code)
