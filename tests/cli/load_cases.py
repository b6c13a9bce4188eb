"""load: tensors and slices of them as NumPy and safetensors files, as a user types it."""
import ast
import json
import os
import struct
from urllib.parse import unquote

from runner import check, main

ZERO2 = "deepspeed/zero2_bf16_dp4"
TIED = "safetensors/gpt2_tied"
FORMATS = (ZERO2, "deepspeed/zero3_bf16_dp4", "torch/dcp_2d_s0_s1", "torch/pt_trainer", TIED, "safetensors/single")


def npy(path):
    """(descr, shape, bytes) of a .npy file."""
    data = path.read_bytes()
    check(data[:8] == b"\x93NUMPY\x01\x00", f"no .npy: {data[:8]!r}")
    end = 10 + struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:end].decode())
    check(end % 64 == 0 and header["fortran_order"] is False, str(header))
    return header["descr"], header["shape"], data[end:]


def tensors(path):
    """name -> (dtype, shape, bytes) of a safetensors file."""
    data = path.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    return {n: (t["dtype"], t["shape"], data[end + t["data_offsets"][0]:end + t["data_offsets"][1]]) for n, t in header.items()}


def whole(sh, name):
    sh.run("convert", sh.checkpoint(name), "whole.safetensors")
    return tensors(sh.path("whole.safetensors"))


def case_load_takes_rows_into_one_npy_file(sh):
    sh.run("export", sh.checkpoint(ZERO2), "rows.npy", "--slice", "wte.weight[3:7, :]",
           out=["^note    npy: a tensor of BF16 is written as the bits in uint16", r"^tensor  wte.weight\[3:7, :\]   BF16 \[4, 32\]$",
                "^done    1 file, .*: rows.npy$"])
    dtype, shape, data = whole(sh, ZERO2)["wte.weight"]
    check(npy(sh.path("rows.npy")) == ("<u2", (4, 32), data[3 * 64:7 * 64]), "other bytes")
    check((dtype, shape) == ("BF16", [101, 32]), "not the tensor that this is about")


def case_load_takes_columns_and_indices(sh):
    sh.run("export", sh.checkpoint(ZERO2), "out", "--to", "npy", "--slice", "wte.weight[:, -2:]", "--slice", "h.0.fc.weight[5]",
           "--slice", "ln_f.bias[1, ...]")
    held = whole(sh, ZERO2)
    columns = b"".join(held["wte.weight"][2][64 * row + 60:64 * row + 64] for row in range(101))
    check(npy(sh.path("out/wte.weight.npy")) == ("<u2", (101, 2), columns), "other columns")
    check(npy(sh.path("out/h.0.fc.weight.npy")) == ("<u2", (32,), held["h.0.fc.weight"][2][5 * 64:6 * 64]), "another row")
    check(npy(sh.path("out/ln_f.bias.npy")) == ("<u2", (), held["ln_f.bias"][2][2:4]), "another element")
    check(len(os.listdir(sh.path("out"))) == 3, "more than was sliced")


def case_load_writes_every_tensor_of_every_format_as_npy(sh):
    for name in FORMATS:
        sh.run("export", sh.checkpoint(name), "all", "--to", "npy", "-q")
        sh.run("convert", sh.checkpoint(name), "whole.safetensors", "-q", "--overwrite")
        held = tensors(sh.path("whole.safetensors"))
        files = {unquote(f.name.removesuffix(".npy")): npy(f) for f in sh.path("all").iterdir()}
        check(set(files) == set(held), f"{name}: {set(files) ^ set(held)}")
        for tensor, (_, shape, data) in held.items():
            check(files[tensor][1:] == (tuple(shape), data), f"{name}: {tensor}")
        sh.run("export", sh.checkpoint(name), "all", "--to", "npy", "--overwrite", "--only", next(iter(held)).replace("[", "[[]"))
        check(len(os.listdir(sh.path("all"))) == 1, "not replaced")
        for file in sh.path("all").iterdir():
            file.unlink()
        sh.path("all").rmdir()


def case_load_writes_one_safetensors_file_with_its_slices(sh):
    for target in ("part.safetensors", "without_suffix"):
        words = ("export", sh.checkpoint(ZERO2), target, "--to", "safetensors", "--only", "h.0.*", "--slice", "h.0.fc.weight[-2:, 1:3]")
        sh.run(*words)
        part = tensors(sh.path(target))
        held = whole(sh, ZERO2)
        check(set(part) == {n for n in held if n.startswith("h.0.")}, str(set(part)))
        rows = held["h.0.fc.weight"][2]
        check(part["h.0.fc.weight"] == ("BF16", [2, 2], rows[39 * 64 + 2:39 * 64 + 6] + rows[40 * 64 + 2:40 * 64 + 6]), "other bytes")
        check(part["h.0.ln.bias"] == held["h.0.ln.bias"], "a whole tensor differs")
        sh.run(*words, out="^already done")
        sh.run(*words[:-1], "h.0.fc.weight[0]", code=2, id="E201", err=["already exists"])
        sh.path("whole.safetensors").unlink()


def case_load_takes_a_tied_name_for_its_tensor(sh):
    sh.run("export", sh.checkpoint(ZERO2), "head.npy", "--slice", "lm_head.weight[0]", out=r"^tensor  wte.weight\[0\]")
    check(npy(sh.path("head.npy"))[2] == whole(sh, ZERO2)["wte.weight"][2][:64], "other bytes")


def case_load_of_an_empty_slice_is_an_empty_array(sh):
    sh.run("export", sh.checkpoint(ZERO2), "none.npy", "--slice", "wte.weight[200:]")
    check(npy(sh.path("none.npy")) == ("<u2", (0, 32), b""), "not empty")


def case_load_names_files_safely(sh):
    names = {"../up": "%2E./up", ".hidden": "%2Ehidden", "a/b": "a%2Fb", "sp ace": "sp%20ace", "é": "%C3%A9", "x" * 300: None}
    header = json.dumps({n: {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i, n in enumerate(names)}).encode()
    sh.path("odd.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(range(len(names))))
    document = sh.document("export", "odd.safetensors", "out", "--to", "npy")
    files = {t["name"]: t["file"] for t in document["data"]["tensors"]}
    check(set(os.listdir(sh.path("out"))) == set(files.values()) and len(files) == len(names), str(files))
    for i, (name, file) in enumerate(names.items()):
        check(npy(sh.path("out") / files[name])[2] == bytes([i]), f"{name}: other bytes")
        check(file is None or files[name] == file.replace("/", "%2F") + ".npy", f"{name}: {files[name]}")
    check(sorted(os.listdir(sh.directory)) == ["odd.safetensors", "out"], "a file outside of OUT")


def case_load_of_an_unknown_name_is_10_and_suggests_the_nearest(sh):
    sh.run("export", sh.checkpoint(ZERO2), "x.npy", "--slice", "wte.weigth[0]", code=10,
           id="E1000", err=["no such tensor", "did you mean 'wte.weight'", "nothing was written to x.npy"])
    sh.run("export", sh.checkpoint(ZERO2), "x.npy", "--slice", "qqqqqqqq[0]", code=10, err="lists the")
    sh.run("export", sh.checkpoint(ZERO2), "x.npy", "--only", "nothing.*", code=10, err="no tensor matches --only")
    sh.run("convert", sh.checkpoint(ZERO2), "x", "--only", "weight", code=10, err="did you mean --only weights[?]")
    sh.run("convert", sh.checkpoint(ZERO2), "x", "--only", "wte.weigth", code=10, err="did you mean --only wte.weight[?]")
    sh.run("export", "missing", "x.npy", code=10)
    check(os.listdir(sh.directory) == [], "left-overs")


def case_load_refuses_what_it_cannot_do_as_usage(sh):
    source = sh.checkpoint(ZERO2)
    for words, pattern in (
            (("x.npy", "--slice", "wte.weight[::2]"), "slice steps are not supported"),
            (("x.npy", "--slice", "wte.weight[101]"), "outside dimension 0"),
            (("x.npy", "--slice", "wte.weight[0,0,0]"), "3 entries"),
            (("x.npy", "--slice", "wte.weight"), r"is not NAME\[...\]"),
            (("x.npy",), "holds one tensor, not"),
            (("x",), r"cannot tell the output format[\s\S]*--to FORMAT: "),
            (("x.h5",), "cannot tell the output format"),
            (("x", "--to", "hdf5"), "--to: 'hdf5' is not one of"),
            (("x", "--to", "npy", "--slice", "wte.weight[0]", "--slice", "wte.weight[1]"), "more than one --slice for this tensor"),
            (("x", "--to", "npy", "--only", "h.*", "--slice", "wte.weight[0]"), "--only excludes it"),
            (("x.npy", "--slice", "wte.weight[0]", "--steps"), "--steps")):
        sh.run("export", source, *words, code=2, err=pattern)
    sh.run("export", source, code=2, err="ckpt export CKPT OUT")
    sh.run("export", source, "no/such/x.npy", "--slice", "wte.weight[0]", code=10, err="directory no/such does not exist")
    check(os.listdir(sh.directory) == [], "left-overs")


def case_load_replaces_only_when_asked_and_only_what_is_alike(sh):
    source = sh.checkpoint(ZERO2)
    sh.run("export", source, "x.npy", "--slice", "wte.weight[0]")
    before = sh.path("x.npy").read_bytes()
    sh.run("export", source, "x.npy", "--slice", "wte.weight[1]", code=2, id="E201", err=["x.npy: already exists"])
    check(sh.path("x.npy").read_bytes() == before, "changed")
    sh.run("export", source, "x.npy", "--slice", "wte.weight[1]", "--overwrite")
    check(sh.path("x.npy").read_bytes() != before, "not replaced")
    sh.path("mine").mkdir()
    sh.path("mine/notes.txt").write_text("keep")
    sh.run("export", source, "mine", "--to", "npy", "--only", "h.*", "--overwrite", code=2)
    check(sh.path("mine/notes.txt").read_text() == "keep", "a stranger's directory was replaced")


def case_load_of_broken_checkpoints_has_the_codes_of_convert(sh):
    for name, code in (("zero2_missing_rank", 13), ("pickle_os_system", 15), ("st_overlap", 15), ("zip_truncated", 15),
                       ("hf_index_missing_file", 13), ("hdf5_truncated", 15 if os.access(os.path.join(os.path.dirname(sh.program), "ckpt-h5"), os.X_OK) else 12)):
        sh.run("export", sh.checkpoint(f"broken/{name}"), "out", "--to", "npy", code=code, id=rf"E{code}\d*")
    sh.path("text").write_text("no checkpoint")
    sh.run("export", "text", "out", "--to", "npy", code=12)
    check(sorted(os.listdir(sh.directory)) == ["text"], "left-overs")


def case_load_of_a_damaged_universal_source_is_15(sh):
    sh.run("convert", sh.checkpoint(ZERO2), "u")
    shard = next(sh.path("u/shards/weights").iterdir())
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    sh.run("export", "u", "out", "--to", "npy", "--only", "h.*", code=15, id="E1503")
    sh.run("export", "u", "out", "--to", "npy", "--only", "h.*", "--verify", "none")


def case_load_dry_run_writes_nothing(sh):
    sh.run("export", sh.checkpoint(ZERO2), "out", "--to", "npy", "-n", out=["dry run: ", "tensor  30 more; -v shows all"])
    check(os.listdir(sh.directory) == [], "something was written")


def case_load_that_finds_part_of_what_was_asked_is_3(sh):
    document = sh.document("export", sh.checkpoint(ZERO2), "out", "--to", "npy", "--only", "h.*", "--only", "nothing", code=3)
    check(document["data"]["partial"] and any("nothing" in w["text"] for w in document["warnings"]), str(document))


def case_load_fits_its_schema(sh):
    for i, name in enumerate(FORMATS):
        data = sh.document("export", sh.checkpoint(name), f"out{i}", "--to", "npy")["data"]
        check(len(data["tensors"]) == len(data["target"]["files"]) > 0, str(data))
        check({t["file"] for t in data["tensors"]} == {f["path"] for f in data["target"]["files"]}, str(data))
    data = sh.document("export", sh.checkpoint(ZERO2), "s.npy", "--slice", "wte.weight[0:2]")["data"]
    check(data["tensors"] == [{"name": "wte.weight", "slice": "[0:2]", "dtype": "BF16", "shape": [2, 32], "bytes": 128, "file": None}],
          str(data["tensors"]))
    sh.document("export", sh.checkpoint(ZERO2), "s.npy", "--slice", "wte.weight[0:2]", code=2)


def case_load_is_the_same_within_a_small_memory_and_with_threads(sh):
    sh.run("export", sh.checkpoint(ZERO2), "a.safetensors")
    sh.run("export", sh.checkpoint(ZERO2), "b.safetensors", "--memory", "256M", "--io", "threads", "--threads", "1")
    check(sh.path("a.safetensors").read_bytes() == sh.path("b.safetensors").read_bytes(), "other bytes")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
