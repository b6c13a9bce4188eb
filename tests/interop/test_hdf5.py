"""HDF5 files as h5py writes them, in forms and sizes chosen at test time, equal the written values; links out of the
file, and data that cannot be decoded, are refused by name."""
import json
import random
import re
import zlib

import h5py
import numpy as np
import pytest

from truth import from_hdf5, from_safetensors, same_names

DTYPES = {"f2": "F16", "f4": "F32", "f8": "F64", "i1": "I8", "i2": "I16", "i4": "I32", "i8": "I64", "u1": "U8", "u2": "U16", "u4": "U32",
          "u8": "U64", "?": "BOOL", "c8": "C64", "c16": "F64"}

# The oldest file format, and the newest that Debian 12's HDF5 1.10 reads.
LIBVERS = [("earliest", "v110"), ("v110", "v110")]


def random_array(rng, code, shape):
    """Any bits: NaNs of every payload too."""
    dtype = np.dtype(rng.choice("<>") + code) if code not in ("i1", "u1", "?") else np.dtype(code)
    data = np.frombuffer(rng.randbytes(int(np.prod(shape)) * dtype.itemsize), "u1")
    return (data & 1 if code == "?" else data).copy().view(dtype).reshape(shape)


def random_layout(rng, shape):
    """Keywords of create_dataset: contiguous, or chunks with filters."""
    if not shape or 0 in shape or rng.random() < 0.3:
        return {}
    out = {"chunks": tuple(rng.randint(1, size) for size in shape)}
    if rng.random() < 0.3:
        out["maxshape"] = (None, *shape[1:])
    compression = rng.choice([None, "gzip", "lzf"])
    if compression:
        out["compression"] = compression
    return out | {"shuffle": rng.random() < 0.5, "fletcher32": rng.random() < 0.5}


def wanted(code, array):
    little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))  # swaps bytes, keeps bits
    shape = (*array.shape, 2) if code == "c16" else array.shape
    return DTYPES[code], shape, little.tobytes()


def check_routes(ckpt, source, out, tensors):
    """Through one file, through the universal format and back, and through HDF5 of our own, read again."""
    ckpt("convert", source, out / "one.safetensors")
    ckpt("convert", source, out / "universal", "--verify", "full")
    ckpt("verify", out / "universal", "--against", source)
    ckpt("convert", out / "universal", out / "back.safetensors")
    ckpt("convert", source, out / "own.h5")
    ckpt("convert", out / "own.h5", out / "again.safetensors")
    for name in ("one", "back", "again"):
        found = from_safetensors(out / f"{name}.safetensors")
        assert set(found) == set(tensors) and same_names(tensors, found) == [], name
    assert same_names(tensors, from_hdf5(out / "own.h5")) == []


@pytest.mark.parametrize("seed", range(6))
def test_every_dataset_holds_what_h5py_wrote(seed, ckpt, out, tmp_path):
    rng = random.Random(seed)
    tensors = {}
    path = tmp_path / "m.h5"
    with h5py.File(path, "w", libver=rng.choice(LIBVERS), userblock_size=rng.choice([0, 512, 2048])) as file:
        for number, code in enumerate([*DTYPES, *DTYPES]):
            shape = tuple(rng.choice([0, 1, 2, 3, 17, 40]) for _ in range(rng.randint(0, 4)))
            array = random_array(rng, code, shape)
            name = f"g{number % 3}/d{number}" if number % 3 else f"d{number}"
            file.create_dataset(name, data=array, **random_layout(rng, shape))
            tensors[name.replace("/", ".")] = wanted(code, array)
    check_routes(ckpt, path, out, tensors)


def test_names_that_our_own_files_give_a_meaning_come_back(ckpt, out, tmp_path):
    import torch
    names = ["", ".", "a", "a.b", "g.__value__", "__value__", "h", "h.__value__", "h.__value__.i", "%5F_value__", "%", "x/y", "x%2Fy", "nul\0x"]
    state = {name: torch.full((2,), float(number)) for number, name in enumerate(names)}
    from safetensors.torch import save_file
    save_file(state, tmp_path / "in.safetensors")
    ckpt("convert", tmp_path / "in.safetensors", out / "own.h5")
    ckpt("convert", out / "own.h5", out / "again.safetensors")
    assert from_safetensors(out / "again.safetensors") == from_safetensors(tmp_path / "in.safetensors")


def test_a_dataset_without_a_dataspace_holds_no_value(ckpt, out, tmp_path):
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["values"] = np.arange(3, dtype="f4")
        file["none"] = h5py.Empty("f4")
    run = ckpt("convert", tmp_path / "m.h5", out / "m.safetensors")
    assert "none" in run.stderr and "no value (a null dataspace)" in run.stderr
    assert set(from_safetensors(out / "m.safetensors")) == {"values"}


def test_chunks_of_any_size_are_decoded_in_pieces(ckpt, out, tmp_path):
    """Rows of chunks above what is decoded at once, in the 1 GiB of address space that every test has."""
    tensors = {}
    with h5py.File(tmp_path / "m.h5", "w") as file:
        for name, shape, chunks in (("tall", (20, 3000, 700), (7, 100, 700)), ("wide", (3, 5_000_000), (2, 65536)), ("flat", (9_000_001,), (4097,))):
            array = (np.arange(np.prod(shape), dtype="f4") % 8191).reshape(shape)
            file.create_dataset(name, data=array, chunks=chunks, compression="lzf")
            tensors[name] = wanted("f4", array)
    ckpt("convert", tmp_path / "m.h5", out / "one.safetensors", "--memory", "100M")
    assert same_names(tensors, from_safetensors(out / "one.safetensors")) == []
    ckpt("export", tmp_path / "m.h5", out / "part.npy", "--slice", "tall[13:15, :, 3]")
    array = np.frombuffer(tensors["tall"][2], "f4").reshape(20, 3000, 700)
    assert np.array_equal(np.load(out / "part.npy"), array[13:15, :, 3])


def test_many_small_compressed_datasets_are_decoded_together(ckpt, out, tmp_path):
    tensors = {}
    with h5py.File(tmp_path / "m.h5", "w") as file:
        for number in range(2000):
            array = np.arange(number, number + 50, dtype="i4")
            file.create_dataset(f"{number:04}", data=array, compression="gzip")
            tensors[f"{number:04}"] = wanted("i4", array)
    ckpt("convert", tmp_path / "m.h5", out / "one.safetensors")
    assert same_names(tensors, from_safetensors(out / "one.safetensors")) == []


def test_links_are_further_names_of_one_dataset(ckpt, out, tmp_path):
    array = np.arange(12, dtype="f4")
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.create_dataset("a/b/w", data=array)
        file["hard"] = file["a/b/w"]
        file["soft"] = h5py.SoftLink("/a/b/w")
        file["relative"] = h5py.SoftLink("a/b/w")
        file["a/over"] = h5py.SoftLink("/soft")
        file["a/group"] = h5py.SoftLink("/a/b")
        file["dangling"] = h5py.SoftLink("/nothing")
        file["round"] = h5py.SoftLink("/about")
        file["about"] = h5py.SoftLink("/round")
        file["a/b/up"] = file["a"]  # a group inside itself
    told = json.loads(ckpt("inspect", tmp_path / "m.h5", "--json").stdout)["data"]
    assert {a["name"] for a in told["aliases"]} == {"hard", "soft", "relative", "a.over"}
    assert all(a["target"] == "a.b.w" for a in told["aliases"])
    text = json.dumps(told)
    for name in ("dangling", "round", "about", "a/b/up", "a/group"):
        assert f"/{name}" in text, name
    ckpt("convert", tmp_path / "m.h5", out / "one.safetensors")
    assert from_safetensors(out / "one.safetensors")["a.b.w"] == wanted("f4", array)


def external_link(file):
    file["other"] = h5py.ExternalLink("secret.h5", "/w")


def external_storage(file):
    file.create_dataset("other", shape=(4,), dtype="f4", external=[("/etc/passwd", 0, 16)])


def virtual(file):
    layout = h5py.VirtualLayout(shape=(4,), dtype="f4")
    layout[:] = h5py.VirtualSource("secret.h5", "w", shape=(4,))
    file.create_virtual_dataset("other", layout)


def never_written(file):
    file.create_dataset("other", shape=(1 << 34,), dtype="u1", chunks=(1 << 20,), compression="gzip")


def bursting_chunk(file):
    """A chunk of 1,000 bytes whose stream gives 2 GB."""
    stream = zlib.compressobj(1)
    blocks = [stream.compress(bytes(1 << 20)) for _ in range(32)] + [stream.flush(zlib.Z_FULL_FLUSH)]
    again = zlib.compressobj(1, zlib.DEFLATED, -15)  # the same blocks without the head, again and again
    more = again.compress(bytes(32 << 20)) + again.flush(zlib.Z_FULL_FLUSH)
    bomb = b"".join(blocks) + more * 63
    dataset = file.create_dataset("other", shape=(1000,), dtype="u1", chunks=(1000,), compression="gzip")
    dataset.id.write_direct_chunk((0,), bomb)


def unknown_filter(file):
    dataset = file.create_dataset("other", shape=(100,), dtype="u1", chunks=(100,), compression=32015, allow_unknown_filter=True)
    dataset.id.write_direct_chunk((0,), b"anything")


def damaged_chunk(file):
    dataset = file.create_dataset("other", shape=(100,), dtype="u1", chunks=(100,), fletcher32=True)
    dataset.id.write_direct_chunk((0,), bytes(104)[:-1] + b"\1")


def damaged_lzf(file):
    dataset = file.create_dataset("other", shape=(100,), dtype="u1", chunks=(100,), compression="lzf")
    dataset.id.write_direct_chunk((0,), b"\xff" * 20)


def short_chunk(file):
    dataset = file.create_dataset("other", shape=(100,), dtype="u1", chunks=(100,), compression="gzip")
    dataset.id.write_direct_chunk((0,), zlib.compress(bytes(7)))


def deep_groups(file):
    group = file
    for _ in range(3000):
        group = group.create_group("g")
    group.create_dataset("other", data=np.zeros(4, "f4"))


@pytest.mark.parametrize("make, code, words", [
    (external_link, 15, "/other.*link to another file"), (external_storage, 15, "/other.*other files"), (virtual, 15, "/other.*virtual"),
    (never_written, 15, "/other.*expands"), (bursting_chunk, 15, "/other"), (unknown_filter, 12, "/other.*filter 32015"),
    (damaged_chunk, 15, "/other"), (damaged_lzf, 15, "/other"), (short_chunk, 15, "/other"), (deep_groups, 0, "")], ids=lambda x: getattr(x, "__name__", " "))
def test_what_leads_out_or_cannot_be_decoded_is_refused_by_name(make, code, words, ckpt, out, tmp_path):
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file.create_dataset("w", data=np.ones(4, "f4"))
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.create_dataset("sound", data=np.ones(4, "f4"))
        make(file)
    run = ckpt("convert", tmp_path / "m.h5", out / "one.safetensors", expect=code)
    if code == 0:
        assert len(from_safetensors(out / "one.safetensors")) == 2
        return
    text = " ".join(run.stderr.split())
    assert re.search(words, text), run.stderr
    assert f"{tmp_path / 'm.h5'}" in text and list(out.iterdir()) == []
    assert ckpt("verify", tmp_path / "m.h5", expect=None).returncode in (1, code)


def test_chunks_in_the_form_of_a_newer_hdf5_are_unsupported_not_corrupt(ckpt, out, tmp_path):
    """h5py's HDF5 2.0 writes them under libver="latest"; a helper with that HDF5 reads them."""
    array = np.arange(100, dtype="f4")
    with h5py.File(tmp_path / "m.h5", "w", libver="latest") as file:
        file.create_dataset("w", data=array, chunks=(10,), compression="gzip")
    run = ckpt("convert", tmp_path / "m.h5", out / "one.safetensors", expect=None)
    if run.returncode == 0:
        assert from_safetensors(out / "one.safetensors")["w"] == wanted("f4", array)
    else:
        assert run.returncode == 12 and "a version that HDF5" in " ".join(run.stderr.split()), run.stderr


@pytest.mark.parametrize("seed", range(3))
def test_a_file_that_is_cut_anywhere_is_refused(seed, ckpt, out, tmp_path):
    rng = random.Random(seed)
    with h5py.File(tmp_path / "m.h5", "w", libver=LIBVERS[seed % 2]) as file:
        for number in range(20):
            file.create_dataset(f"g{number % 4}/d{number}", data=np.arange(300, dtype="f4"), **random_layout(rng, (300,)))
    whole = (tmp_path / "m.h5").read_bytes()
    for _ in range(25):
        (tmp_path / "cut.h5").write_bytes(whole[:rng.randrange(9, len(whole))])
        run = ckpt("convert", tmp_path / "cut.h5", out / "one.safetensors", expect=15)
        assert "cut.h5" in run.stderr and list(out.iterdir()) == []


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_are_refused_or_change_nothing_but_values(seed, ckpt, out, tmp_path):
    """No flip causes a crash, a hang or leftovers; if the file still opens, every tensor keeps its size."""
    rng = random.Random(seed)
    with h5py.File(tmp_path / "m.h5", "w", libver=LIBVERS[seed % 2]) as file:
        for number in range(8):
            file.create_dataset(f"g{number % 3}/d{number}", data=np.arange(64, dtype="f4"), **random_layout(rng, (64,)))
    whole = bytearray((tmp_path / "m.h5").read_bytes())
    for number in range(40):
        damaged = whole.copy()
        for _ in range(rng.choice([1, 1, 1, 4])):
            damaged[rng.randrange(len(whole))] ^= rng.randrange(1, 256)
        (tmp_path / "flip.h5").write_bytes(damaged)
        run = ckpt("convert", tmp_path / "flip.h5", out / f"{number}.safetensors", expect=None)
        assert run.returncode in (0, 3, 12, 15), run.stderr
        assert (out / f"{number}.safetensors").exists() == (run.returncode in (0, 3))
