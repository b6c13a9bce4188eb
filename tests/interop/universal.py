"""A second implementation of the universal format, written from src/format/FORMAT.md and nothing else."""
import dataclasses
import json
import math
import re
import struct

import xxhash

import layouts

LEAF = 4 << 20
CLASSES = ["weights", "optim", "blobs", "objects", "index"]
CLASS_OF = {"param": 0, "buffer": 0, "slot": 1, "blob": 2}
BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
        "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
        "C64": 64, "F64": 64, "I64": 64, "U64": 64}


def xxh3(data):
    return xxhash.xxh3_128(data).digest()


def strict_json(data):
    def members(pairs):
        assert len(dict(pairs)) == len(pairs), "a member twice"
        return dict(pairs)
    return json.loads(data.decode("utf-8"), object_pairs_hook=members)


def natural(value):
    if isinstance(value, str):
        assert str(int(value)) == value and 2**53 - 1 < int(value) < 2**64
        return int(value)
    assert type(value) is int and 0 <= value <= 2**53 - 1
    return value


def read_manifest(data):
    """Section 3: the begin, the end and the hash before anything else."""
    assert data.startswith(b'{"format":"ckpt",')
    assert data[-43:-35] == b'"xxh3":"' and data[-3:] == b'"}\n'
    assert xxh3(data[:-35]).hex().encode() == data[-35:-3]
    manifest = strict_json(data)
    assert list(manifest)[0] == "format" and list(manifest)[-1] == "xxh3"
    assert is_known(manifest["version"]) and manifest["features"]["required"] == []
    kinds = {"whole"} if manifest["version"] == "0.9" else {"whole", "mesh", "irregular"}
    assert {layout["kind"] for layout in manifest["layouts"]} <= kinds and manifest.get("dropped", []) == []
    for rows in (manifest["tensors"], manifest["aliases"]):
        names = [row["name"].encode() for row in rows]
        assert names == sorted(set(names))
    return manifest


def is_known(version):
    """Section 9: every minor version of 1."""
    return version == "0.9" or re.fullmatch(r"1\.(0|[1-9][0-9]{0,4})", version) is not None


def go_together(*versions):
    return len({version == "0.9" for version in versions}) == 1


def path_of(file_class, writer, volume):
    if file_class in (0, 1):
        return f"shards/{CLASSES[file_class]}/{writer:05}-{volume:05}.safetensors"
    return {2: f"blobs/{writer:05}-{volume:05}.safetensors", 3: "blobs/objects.json", 4: f"index/{writer:05}.bin"}[file_class]


def read_sums(data):
    """Section 5: the id and one dict a file, with its leaves."""
    magic, major, minor, leaf_shift, id_bytes, count, leaf_count = struct.unpack_from("<8sHHI16sQQ", data)
    assert (magic, leaf_shift) == (b"CKPTSUMS", 22) and (major == 1 or (major, minor) == (0, 9))
    reserved = (major, minor) in ((0, 9), (1, 0))  # a later minor version may use what is zero now
    assert not reserved or data[48:64] == bytes(16)
    assert len(data) == 64 + 64 * count + 16 * leaf_count
    leaves = [data[64 + 64 * count + 16 * i:][:16] for i in range(leaf_count)]
    files, first = [], 0
    for n in range(count):
        at = 64 + 64 * n
        file_class, writer, volume, zero, size, data_begin, first_leaf, zeros, root = struct.unpack_from("<IIIIQQQ8s16s", data, at)
        assert first_leaf == first and not (reserved and (zero != 0 or zeros != bytes(8)))
        mine = leaves[first:first + -(-size // LEAF)]
        first += len(mine)
        path = path_of(file_class, writer, volume)
        text = path.encode()
        assert root == xxh3(b"ckpt.root.1\0" + id_bytes + struct.pack("<I", len(text)) + text + struct.pack("<Q", size) + b"".join(mine))
        files.append({"key": (file_class, writer, volume), "path": path, "size": size, "data_begin": data_begin, "leaves": mine})
    assert first == leaf_count
    keys = [f["key"] for f in files]
    assert keys == sorted(set(keys))
    return id_bytes, files, "0.9" if major == 0 else f"{major}.{minor}"


def size_of(row):
    elements = 1
    for dim in row["shape"]:
        elements *= natural(dim)
    bits = elements * BITS[row["dtype"]]
    assert bits % 8 == 0
    return bits // 8


def alignment(size):
    return 12 if size == 0 else min(12, (size & -size).bit_length() - 1)


def check_shard(data, file, entries, id_bytes, version):
    """Sections 4 and 6: the header against the computed layout. Yields each entry with its bytes."""
    length = int.from_bytes(data[:8], "little")
    assert 8 + length == file["data_begin"] and file["data_begin"] % 4096 == 0
    text = data[8:8 + length]
    header = strict_json(text.rstrip(b" "))
    metadata = header.pop("__metadata__")
    file_class, writer, volume = file["key"]
    series = {"id": id_bytes.hex(), "class": CLASSES[file_class], "writer": writer, "volume": volume}
    if any(entry.flat for entry in entries):
        series["dcp_readable"] = False
    order = sorted(entries, key=lambda entry: (-alignment(entry.bytes), entry.name.encode()))
    keys = ["format", "ckpt.v1"]
    if any(entry.flat or entry.size != entry.shape for entry in entries):
        keys += ["DCP_SHARDING_INFO", "DCP_VERSION"]
        offsets = {entry.name: {"saved_offsets": [entry.flat[0]] if entry.flat else entry.offset} for entry in order}
        assert json.loads(metadata["DCP_SHARDING_INFO"]) == offsets and metadata["DCP_VERSION"] == "1.0"
    said = json.loads(metadata["ckpt.v1"])
    assert is_known(said["format"]) and go_together(said.pop("format"), version)
    assert [key for key in metadata if key in keys] == keys and metadata["format"] == "pt"
    assert {key: said.get(key) for key in series} == series
    assert list(header) == [entry.name for entry in order]
    at = 0
    for entry in order:
        end = at + entry.bytes
        assert at % (1 << alignment(entry.bytes)) == 0
        shape = [entry.flat[1] - entry.flat[0]] if entry.flat else entry.size
        assert header[entry.name] == {"dtype": entry.dtype, "shape": shape, "data_offsets": [at, end]}
        assert entry.place in (None, file["data_begin"] + at), "an index file that is wrong about a place"
        yield entry, data[file["data_begin"] + at:file["data_begin"] + end]
        at = end
    assert file["data_begin"] + at == file["size"]


@dataclasses.dataclass
class Entry:
    """A chunk of a row that is stored in some file."""
    row: int
    name: str
    dtype: str
    shape: list
    offset: list
    size: list
    flat: tuple | None
    place: int | None = None  # according to an index file

    @property
    def elements(self):
        return layouts.elements_of(self.shape, self.offset, self.size, self.flat)

    @property
    def bytes(self):
        return (self.flat[1] - self.flat[0] if self.flat else math.prod(self.size)) * BITS[self.dtype] // 8


def entries_by_file(manifest, indices):
    """Section 6.4: (class, writer, volume) -> entries."""
    files = {}

    def add(key, row, chunk, place=None):
        tensor = manifest["tensors"][row]
        shape = [natural(n) for n in tensor["shape"]]
        files.setdefault(key, []).append(Entry(row, tensor["name"], tensor["dtype"], shape, *chunk, place))

    for number, row in enumerate(manifest["tensors"]):
        layout = manifest["layouts"][row.get("layout", 0)]
        shape, file_class, begin = [natural(n) for n in row["shape"]], CLASS_OF[row["role"]], natural(row.get("begin", 0))
        if layout["kind"] == "whole":
            add((file_class, 0, row.get("volume", 0)), number, ([0] * len(shape), shape, None))
        elif layout["kind"] == "mesh":
            for writer in range(layouts.writer_count(layout)):
                chunks = layouts.written(layout, row["name"], shape, BITS[row["dtype"]], begin, writer)
                for volume, chunk in enumerate(chunks):
                    add((file_class, writer, volume), number, chunk)
        else:
            for writer, rows in indices.items():
                for volume, (chunk, place) in rows.get(number, {}).items():
                    add((file_class, writer, volume), number, chunk, place)
    return files


class Tensors:
    """Joins chunks and checks that every element is present."""

    def __init__(self, rows):
        self.rows = rows
        self.bytes = [bytearray(size_of(row)) for row in rows]
        self.seen = [set() for _ in rows]
        self.chunks = [{} for _ in rows]  # elements -> bytes

    def add(self, entry, data):
        bits = BITS[entry.dtype]
        group = next(n for n in range(1, 9) if n * bits % 8 == 0)  # elements that share bytes
        elements = entry.elements
        copy = self.chunks[entry.row].setdefault(tuple(elements), data)
        assert copy == data, "copies that differ"
        if copy is not data:
            return
        if entry.size == entry.shape and not entry.flat:
            assert not self.seen[entry.row] and len(data) == len(self.bytes[entry.row])
            self.bytes[entry.row][:] = data
            self.seen[entry.row] = range(math.prod(entry.shape))
            return
        width = group * bits // 8
        assert len(elements) % group == 0
        out, seen = self.bytes[entry.row], self.seen[entry.row]
        for n in range(0, len(elements), group):
            first = elements[n]
            assert first % group == 0 and elements[n:n + group] == list(range(first, first + group))
            out[first // group * width:first // group * width + width] = data[n // group * width:n // group * width + width]
        assert seen.isdisjoint(elements), "an element in two files"
        seen.update(elements)

    def finish(self):
        for row, data, seen in zip(self.rows, self.bytes, self.seen):
            assert len(seen) * BITS[row["dtype"]] == len(data) * 8, row["name"]
        return {row["name"]: (row["dtype"], tuple(natural(n) for n in row["shape"]), bytes(data))
                for row, data in zip(self.rows, self.bytes)}


def value(node):
    """Section 7.1, as Python values; opaque objects and tensors as (kind, content)."""
    if isinstance(node, list):
        return [value(item) for item in node]
    if not isinstance(node, dict):
        assert not isinstance(node, float) and (type(node) is not int or abs(node) <= 2**53 - 1)
        return node
    (kind, content), = node.items()
    if kind == "int":
        assert str(int(content)) == content and abs(int(content)) > 2**53 - 1
        return int(content)
    if kind == "float":
        assert len(content) == 16
        return struct.unpack(">d", bytes.fromhex(content))[0]
    if kind in ("text", "bytes"):
        assert content == content.lower()
        raw = bytes.fromhex(content)
        return raw if kind == "bytes" else raw.decode("utf-8", "surrogatepass")
    if kind in ("tuple", "set"):
        return (tuple if kind == "tuple" else frozenset)(value(item) for item in content)
    if kind == "dict":
        return {value(key): value(item) for key, item in content}
    if kind == "tensor":
        return ("tensor", content)
    assert kind == "object" and set(content) <= {"global", "args", "state"}
    return ("object", content["global"], *(value(content[part]) for part in ("args", "state") if part in content))


def read(root):
    """A whole checkpoint, every rule checked: manifest, tensors by name, objects by name."""
    data = (root / "manifest.json").read_bytes()
    manifest = read_manifest(data)
    assert (root / "index" / "manifest.json").read_bytes() == data
    sums = (root / "sums.bin").read_bytes()
    assert len(sums) == natural(manifest["sums"]["bytes"]) and xxh3(sums).hex() == manifest["sums"]["xxh3"]
    id_bytes, files, version = read_sums(sums)
    assert id_bytes.hex() == manifest["id"] and go_together(version, manifest["version"])
    assert all(row.get("layout", 0) < len(manifest["layouts"]) for row in manifest["tensors"])
    contents = {file["key"]: (root / file["path"]).read_bytes() for file in files}
    for file in files:
        data = contents[file["key"]]
        assert len(data) == file["size"]
        assert [xxh3(data[at:at + LEAF]) for at in range(0, len(data), LEAF)] == file["leaves"]
    shapes = [[natural(n) for n in row["shape"]] for row in manifest["tensors"]]
    indices = {key[1]: layouts.read_index(data, id_bytes, key[1], shapes) for key, data in contents.items() if key[0] == 4}
    entries = entries_by_file(manifest, indices)
    together, objects = Tensors(manifest["tensors"]), {}
    for file in files:
        if file["key"][0] == 3:
            document = strict_json(contents[file["key"]])
            assert (document["format"], document["id"]) == ("ckpt.objects", manifest["id"])
            assert is_known(document["version"]) and go_together(document["version"], manifest["version"])
            objects = {row["name"]: value(row["value"]) for row in document["objects"]}
        elif file["key"][0] < 3:
            for entry, data in check_shard(contents[file["key"]], file, entries.pop(file["key"]), id_bytes, manifest["version"]):
                together.add(entry, data)
    assert not entries, "tensors without a file"
    tensors = together.finish()
    assert all(alias["target"] in tensors and alias["name"] not in tensors for alias in manifest["aliases"])
    return manifest, tensors, objects
