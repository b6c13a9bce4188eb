"""Sources as trainers write them, and targets as users name them: hand-made files, and combined golden ones."""
import argparse
import enum
import json
import os
import re
import shutil
import subprocess
import zipfile

from runner import check, main
from torch_file import Parameter, Tensor, save

ZERO2 = "deepspeed/zero2_bf16_dp4"


def weights():
    return {"w": Tensor([1, 2, 3, 4], [2, 2]), "b": Tensor([5])}


def adam():
    return {"state": {0: {"exp_avg": Tensor([1, 2, 3, 4], [2, 2])}}, "param_groups": [{"lr": 1e-3, "params": [0, 1]}]}


def names(sh, path):
    return set(sh.run("ls", "-q", path).out.splitlines())


# --- wrapped weights ---------------------------------------------------------------------------------------------------


def case_values_nested_deeper_than_the_format_holds_are_kept_as_their_pickle(sh):
    for levels, kept in ((61, True), (62, False), (200, False)):
        value = 1
        for _ in range(levels):
            value = [value]
        save({"w": Tensor([1.0, 2.0]), "args": argparse.Namespace(a=value), "step": 7}, sh.path("m.pt"))
        shutil.rmtree(sh.path("c"), ignore_errors=True)
        warned = "nested more than 64 levels deep are kept only in the blob data.pkl: args"
        sh.run("convert", "m.pt", "c", "--to", "ckpt", **({"not_err": warned} if kept else {"err": warned}))
        names = [o["name"] for o in json.loads(sh.path("c/blobs/objects.json").read_text())["objects"]]
        check(("args" in names) == kept and "step" in names, str(names))
        if not kept:
            with zipfile.ZipFile(sh.path("m.pt")) as file:
                stream = file.read("archive/data.pkl")
            check(any(stream in f.read_bytes() for f in sh.path("c").rglob("*.safetensors")), "the pickle is not kept")
        sh.run("verify", "c", "--against", "m.pt")
        sh.run("convert", "m.pt", "w.safetensors", "--overwrite")


def case_other_steps_of_the_run_beside_a_model_are_no_part_of_it(sh):
    shutil.copytree(sh.checkpoint("safetensors/single"), sh.path("run"))
    for name in ("checkpoint-500", "ckpt-500", "ckpt_7", "step-9", "iter_3"):
        shutil.copytree(sh.checkpoint("safetensors/single"), sh.path("run") / name)
        sh.run("convert", "run", f"{name}.safetensors", err="")
        shutil.rmtree(sh.path("run") / name)


def case_only_weights_drops_a_wrapper_and_says_so(sh):
    for wrapper, optimizer in (("state_dict", "optimizer_states"), ("module", "optimizer"), ("model", "optimizer")):
        save({wrapper: weights(), optimizer: adam(), "step": 3}, sh.path(f"{wrapper}.pt"))
        sh.run("convert", f"{wrapper}.pt", f"{wrapper}.safetensors", "--only", "weights", out=f"^note .*removed prefix '{wrapper}.'$")
        check(names(sh, f"{wrapper}.safetensors") == {"w", "b"}, wrapper)
        sh.run("convert", f"{wrapper}.pt", f"{wrapper}.all.safetensors", not_out="wrapper")
        check(f"{wrapper}.w" in names(sh, f"{wrapper}.all.safetensors"), "names of everything must stand as they are")


def case_a_model_alone_is_no_wrapper(sh):
    save({"model": weights()}, sh.path("m.pt"))
    sh.run("convert", "m.pt", "m.safetensors", "--only", "weights", not_out="wrapper")
    check(names(sh, "m.safetensors") == {"model.w", "model.b"}, "a prefix was taken away unasked")
    sh.run("convert", "m.pt", "s.safetensors", "--only", "weights", "--strip-prefix", "model.", "--add-prefix", "net.")
    check(names(sh, "s.safetensors") == {"net.w", "net.b"}, "the prefixes")


def case_a_wrapper_of_a_dcp_checkpoint_is_dropped_too(sh):
    sh.run("convert", sh.checkpoint("torch/fsdp2_nested_optim"), "m.safetensors", "--only", "weights", out="removed prefix 'model.'")
    check("emb.weight" in names(sh, "m.safetensors"), "the wrapper is there")


# --- what the files do not tell ----------------------------------------------------------------------------------------


def case_flat_parameters_need_a_map(sh):
    source = sh.checkpoint("torch/fsdp1_local")
    sh.run("convert", source, "m.safetensors", code=12, err=["model._flat_param.* 1648 elements", "--map FILE"])
    check(not sh.path("m.safetensors").exists(), "something was written")
    sh.run("inspect", source, err="model._flat_param")
    rules = source.parent / "map.json"
    sh.run("convert", source, "m.safetensors", "--map", rules, out="next: ckpt diff .*--map ")
    check({"emb.weight", "head.weight", "blk.0.up.bias"} <= names(sh, "m.safetensors"), "the names of the map")
    sh.run("verify", "m.safetensors", "--against", source, "--map", rules)
    sh.path("bad.json").write_text('{"ckpt-map": 1, "rules": [{"tensor": "a"}]}')
    sh.run("convert", source, "n.safetensors", "--map", "bad.json", code=2, err="bad.json: --map: rule 1")
    sh.run("convert", source, "n.safetensors", "--map", "nowhere.json", code=10, err="nowhere.json")


# --- directories of trainers -------------------------------------------------------------------------------------------


def trainers_directory(sh, name="checkpoint-2"):
    """What Hugging Face's Trainer writes: weights, and the training state beside them."""
    shutil.copytree(sh.checkpoint("safetensors/gpt2_single_file"), sh.path(name))
    for file, value in (("optimizer.pt", adam()), ("scheduler.pt", {"last_epoch": 2}), ("rng_state.pth", {"cpu": Tensor([1])})):
        save(value, sh.path(name) / file)
    sh.path(name + "/trainer_state.json").write_text('{"global_step": 2}')
    save({"args": 1}, sh.path(name) / "training_args.bin")


def case_the_optimizer_beside_the_weights_is_one_checkpoint_with_them(sh):
    trainers_directory(sh)
    sh.run("inspect", "checkpoint-2", out=["^safetensors 1 file and 3 of the trainer · step 2", "exp_avg f32 +1 tensor"], not_err="skipped")
    sh.run("convert", "checkpoint-2", "u", not_err="skipped")
    check({"optimizer.state.0.exp_avg", "rng_state.cpu", "transformer.wte.weight"} <= names(sh, "u"), str(sorted(names(sh, "u"))))
    objects = json.loads(sh.path("u/blobs/objects.json").read_text())["objects"]
    check("scheduler.last_epoch" in [o["name"] for o in objects], str(objects))
    sh.run("verify", "u", "--against", "checkpoint-2", out=" 0 different, 0 only here, 0 only there")
    sh.run("convert", "checkpoint-2", "w.safetensors", "--only", "weights", not_out="skipped", not_err="skipped")
    check(not any(n.startswith("optimizer") for n in names(sh, "w.safetensors")), "weights alone")
    sh.run("inspect", "checkpoint-2", "--from", "torch", out=["^torch 3 files", "exp_avg f32 +1 tensor"])


def case_a_save_keeps_the_optimizer_and_knows_its_step(sh):
    trainers_directory(sh)
    sh.run("save", "checkpoint-2", "--store", "s", "--run", "r", out="^saved +r@2$")
    check(sh.document("list", "--store", "s")["data"]["checkpoints"][0]["step"] == 2, "the step of trainer_state.json")
    check(sh.document("save", "checkpoint-2", "--store", "s", "--run", "r")["data"]["checkpoint"]["step"] == 2, "")
    sh.run("save", "checkpoint-2", "--store", "s", "--run", "r", "--step", "3", out="^saved +r@3$")
    sh.run("save", sh.checkpoint(ZERO2), "--store", "s", "--run", "d", out="^saved +d@3$")
    sh.run("save", sh.checkpoint("safetensors/single"), "--store", "s", "--run", "n", code=2, err=["--step is missing", "--step N"])


def case_a_damaged_optimizer_leaves_the_weights(sh):
    trainers_directory(sh)
    text = sh.path("checkpoint-2/optimizer.pt").read_bytes()
    sh.path("checkpoint-2/optimizer.pt").write_bytes(text[: len(text) // 2])
    sh.run("convert", "checkpoint-2", "u", code=15, err="optimizer.pt")
    sh.run("convert", "checkpoint-2", "w", "--only", "weights")


def case_files_beside_torch_files_are_named_wherever_they_stand(sh):
    sh.path("run/sub/deeper").mkdir(parents=True)
    save({"model": weights()}, sh.path("run/m.pt"))
    for name in ("noext", "ema.pkl", "sub/x.pt", "sub/deeper/y.bin"):
        save(weights(), sh.path("run") / name)
    shutil.copytree(sh.checkpoint("safetensors/single"), sh.path("run/ema"))
    sh.path("run/notes.txt").write_text("of a person")
    sh.path("run/README").write_text("of a person")
    sh.run("convert", "run", "u", code=3, err="skipped 5 files.*: ema/model.safetensors, ema.pkl, noext, sub/deeper/y.bin, sub/x.pt;")
    sh.run("convert", "run", "w", "--only", "weights", code=3)
    sh.run("convert", "run", "n", "--only", "model.w")  # the tensor requested by name is stored
    sh.run("convert", "run", "v", "--allow-skipped", err="skipped 5 files")


def case_weights_beside_the_files_of_ranks_are_named(sh):
    sh.path("run").mkdir()
    save(weights(), sh.path("run/pytorch_model.bin"))
    save(adam(), sh.path("run/optimizer_world_size_1_rank_0.pt"))
    sh.run("convert", "run", "u", code=3, err="skipped a file, not part of the torch checkpoint: pytorch_model.bin;")


def case_checkpoints_of_other_steps_are_a_note(sh):
    shutil.copytree(sh.checkpoint("safetensors/single"), sh.path("out"))
    for step in (100, 200):
        shutil.copytree(sh.checkpoint("safetensors/single"), sh.path(f"out/checkpoint-{step}"))
    sh.run("convert", "out", "m.safetensors", out="^note +beside the checkpoint, not part of it: checkpoint-100, checkpoint-200 ")


def case_a_whole_checkpoint_in_a_folder_beside_the_weights_is_named(sh):
    weights_file = next(sh.checkpoint("safetensors/single").glob("*.safetensors"))
    for number, source in enumerate(("torch/dcp_plain", "torch/fsdp2_flat_optim", "torch/dcp_zstd")):
        root = sh.path(f"fsdp{number}")
        shutil.copytree(sh.checkpoint(source), root / "optimizer_0")
        shutil.copy(weights_file, root / "model.safetensors")
        sh.run("convert", root, f"fsdp{number}.ckpt", code=3, err="skipped a file, .*optimizer_0/")


def case_the_trainers_folder_of_deepspeed_is_a_part_of_the_checkpoint(sh):
    weights_file = next(sh.checkpoint("safetensors/single").glob("*.safetensors"))
    root = sh.path("checkpoint-3")
    shutil.copytree(sh.checkpoint(ZERO2), root)
    for other in root.glob("*.safetensors"):
        other.unlink()
    shutil.copy(weights_file, root / "model.safetensors")
    sh.run("convert", root, "d.safetensors", "--from", "safetensors", code=3, err="skipped")


def case_what_cannot_be_looked_at_beside_a_checkpoint_is_no_success(sh):
    weights_file = next(sh.checkpoint("safetensors/single").glob("*.safetensors"))
    for name, text in (("optimizer.pt", b"version https://git-lfs.github.com/spec/v1\n"), ("optimizer.bin", b""), ("optimizer.pt.gz", b"\x1f\x8b"),
                       ("flax_model.msgpack", b"\x81")):
        root = sh.path(f"beside-{name}")
        root.mkdir()
        shutil.copy(weights_file, root / "model.safetensors")
        (root / name).write_bytes(text)
        sh.run("convert", root, f"{name}.ckpt", code=3, err=f"(skipped a file, .*|without content: ){name}")
    deep = sh.path("deep")
    (deep / "a/b/c/d/e/f").mkdir(parents=True)
    shutil.copy(weights_file, deep / "model.safetensors")
    sh.run("convert", deep, "deep.ckpt", code=3, err="too many files and folders")


def case_an_unfinished_name_is_no_target_and_no_store(sh):
    model = next(sh.checkpoint("safetensors/single").glob("*.safetensors"))
    name = "x.partial-" + "0123456789abcdef" * 2
    sh.path(name).mkdir()
    sh.run("convert", model, name + "/out", code=2, err="unfinished conversions")
    sh.run("convert", model, "y.partial-" + "0" * 32, code=2, err="unfinished conversions")
    sh.run("save", model, "--store", name + "/st", "--run", "r", "--step", "1", code=2, err="unfinished conversions")
    sh.path("my.partial-weights").mkdir()
    shutil.copy(model, sh.path("my.partial-weights/m.safetensors"))
    sh.run("convert", "my.partial-weights/m.safetensors", "my.partial-weights/out")
    sh.run("verify", "my.partial-weights/out")


def case_plain_dicts_keep_keys_of_every_kind(sh):
    x = {"acc": {(0, 1): 1.0, (1, 2): [2, 3]}, "d": {None: 3, "None": 4, 1: 5, "1": 6}}
    save({"model": {"w": Tensor([1.0, 2.0])}, "nested": {"x": x}, "step": 3}, sh.path("m.pt"))
    sh.run("convert", "m.pt", "c")
    sh.run("convert", "c", "again.pt")
    for path in "m.pt", "c", "again.pt":
        sh.run("ls", path, "--objects", "--tsv", out=[r"^nested.x.acc\t\{\(0, 1\): 1.0, \(1, 2\): \[2, 3\]\}$",
                                                      r"^nested.x.d\t\{None: 3, 'None': 4, 1: 5, '1': 6\}$", r"^step\t3$"])
    sh.run("verify", "again.pt", "--against", "m.pt")


def case_attributes_of_parameters_are_kept_or_no_success(sh):
    save({"p": Parameter([1, 2], {"foo": Tensor([7, 8, 9]), "bar": 1}), "q": Tensor([3])}, sh.path("m.pt"))
    text = "Python attributes, or the custom class, of a tensor are kept only in the blob data.pkl: p"
    sh.run("convert", "m.pt", "u", err=text)
    check({"p", "q", "data.pkl", "data/1"} <= names(sh, "u"), f"the attribute is lost: {names(sh, 'u')}")
    sh.run("verify", "u", "--against", "m.pt")
    sh.run("convert", "m.pt", "m.safetensors", code=3, err=text + "; left out here")
    sh.run("convert", "m.pt", "m.safetensors", code=3, out="already done")
    sh.run("convert", "m.pt", "q.safetensors", "-q", code=3, err="^warning: " + text + "; left out here", out=r"\A\Z")
    sh.run("convert", "m.pt", "n.safetensors", "--allow-skipped")
    sh.run("convert", "u", "again.pt", code=3, err="of its source: " + text + "; left out here")
    sh.run("convert", "u", "again.safetensors", "--only", "weights", code=3, err="left out here")


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def case_keys_of_every_kind_have_names_of_their_own(sh):
    keys = [b"w", b"\xff", Color.RED, Color.BLUE, complex(1, 2), complex(2, 1), frozenset({1}), frozenset({2}), True, "True", None, "None",
            1.5, "1.5", 2, "2", (1, 2), "(1, 2)", 2**70, str(2**70), "", "w", "tensor", "object", ("a", (b"b", None))]
    for dictionary in ({k: Tensor([i]) for i, k in enumerate(keys)}, {k: Tensor([i]) for i, k in enumerate(reversed(keys))}):
        save(dictionary, sh.path("m.pt"))
        sh.run("convert", "m.pt", "u", "--overwrite")
        got = [n for n in names(sh, "u") if n != "data.pkl"]
        check(len(got) == len(keys), f"{len(got)} names of {len(keys)}: {got}")
        check({"True", "None", "w", "tensor", "object", "b'w'"} <= set(got), str(got))
        # Releases of Python differ in how they pickle members of an enumeration.
        check({"__main__.Color(1)", "__builtin__.getattr(__main__ Color, RED)"} & set(got), str(got))
        sh.run("verify", "u", "--against", "m.pt", out=f" {len(keys)} identical|: {len(keys)} identical|{len(keys) + 1} identical")


def case_nothing_to_convert_is_an_error(sh):
    sh.run("convert", sh.checkpoint("safetensors/no_tensors"), "u", code=12, err="no tensors found .read as safetensors")
    save({"lr": 0.1, "epoch": 3}, sh.path("scheduler.pt"))
    sh.run("convert", "scheduler.pt", "u", code=12, err="scheduler.pt: no tensors found")
    sh.run("convert", sh.checkpoint("megatron/core_torch_dist_w4"), "x", "--from", "torch", code=12)
    check(sorted(os.listdir(sh.directory)) == ["scheduler.pt"], "something was written")


def case_a_wrong_from_says_what_it_is(sh):
    save(weights(), sh.path("m.pt"))
    for name in ("safetensors", "ckpt", "hdf5", "gguf", "deepspeed", "dcp"):
        sh.run("convert", "m.pt", "u", "--from", name, code=12, err=[f"m.pt: not {name}.*looks like torch", "--from torch"])
    sh.run("inspect", sh.checkpoint("safetensors/single"), "--from", "ckpt", code=12, err="not ckpt: it looks like safetensors")
    sh.run("inspect", sh.checkpoint("safetensors/single") / "model.safetensors", "--from", "torch", code=12, err="not torch: it looks like safetensors")


def case_a_checkpoint_with_hashes_is_one_also_beside_other_files(sh):
    sh.run("convert", sh.checkpoint(ZERO2), "u")
    shutil.copy(sh.checkpoint("safetensors/single") / "model.safetensors", sh.path("u/stray.safetensors"))
    sh.run("inspect", "u", out="^ckpt ", err="skipped a file, not part of the ckpt checkpoint: stray.safetensors;")
    sh.run("convert", "u", "o.safetensors", code=3)


def case_a_stranger_in_a_folder_of_ours_is_damage_and_nothing_else(sh):
    sh.run("convert", sh.checkpoint(ZERO2), "u")
    shutil.copy(sh.checkpoint("safetensors/single") / "model.safetensors", sh.path("u/shards/weights/stray.safetensors"))
    sh.run("verify", "u", code=1, out="stray.safetensors is not part of this checkpoint but looks like a data file", not_err="skipped",
           not_out="skipped")


def case_only_who_tells_of_it_looks_beside_a_checkpoint(sh):
    shutil.copytree(sh.checkpoint("safetensors/single"), sh.path("run"))
    for name in ("run/beside", "run/beside/deeper"):
        sh.path(name).mkdir()
        save(weights(), sh.path(name) / "x.pt")
    sh.run("verify", "run", "--quick", not_out="skipped", not_err="skipped")
    sh.run("verify", "run", err="skipped 2 files")


def case_a_source_that_was_rewritten_is_another_one(sh):
    shutil.copy(sh.checkpoint("safetensors/single") / "model.safetensors", sh.path("m.safetensors"))
    sh.run("convert", "m.safetensors", "u")
    sh.run("convert", "m.safetensors", "u", out="already done")
    before = os.stat(sh.path("m.safetensors"))
    data = bytearray(sh.path("m.safetensors").read_bytes())
    data[-1] ^= 1
    with open(sh.path("m.safetensors"), "r+b") as file:
        file.write(data)
    os.utime(sh.path("m.safetensors"), ns=(before.st_atime_ns, before.st_mtime_ns))
    sh.run("convert", "m.safetensors", "u", code=2, err="already exists")
    # The hashes identify a universal checkpoint: a copy with its times is the same source.
    sh.run("convert", "u", "v")
    shutil.copytree(sh.path("u"), sh.path("w"))
    sh.run("convert", "w", "v", out="already done")


def case_a_trainers_directory_of_torch_files_gives_weights_by_their_names(sh):
    sh.path("checkpoint-2").mkdir()
    for name, value in (("pytorch_model.bin", weights()), ("optimizer.pt", adam()), ("scheduler.pt", {"last_epoch": 2})):
        save(value, sh.path("checkpoint-2") / name)
    save({"cpu": Tensor(b"\1\2\3", bytes_only=True), "python": [3, 1]}, sh.path("checkpoint-2/rng_state.pth"))
    sh.run("convert", "checkpoint-2", "m.safetensors", "--only", "weights")
    check(names(sh, "m.safetensors") == {"w", "b"}, "not the weights by their names")
    sh.run("convert", "checkpoint-2", "u")
    check({"w", "rng_state.cpu", "optimizer.state.0.exp_avg"} <= names(sh, "u"), "something is lost")


def case_verify_compares_the_checksum_of_a_keras_archive(sh):
    if not has_hdf5(sh):
        return
    [file] = sh.checkpoint("hdf5/keras3_model").iterdir()
    sh.run("verify", file, out="structure, CRC-32")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    sh.path("flipped.keras").write_bytes(data)
    sh.run("verify", "flipped.keras", code=1, out="CRC-32 of the entry at [0-9]+: expected")


def with_header(entries):
    header = json.dumps(entries).encode()
    size = max((e["data_offsets"][1] for e in entries.values()), default=0)
    return len(header).to_bytes(8, "little") + header + bytes(range(size))


def case_odd_names_come_back_from_hdf5_or_are_refused(sh):
    if not has_hdf5(sh):
        return
    odd = ["", ".x", "%", "%00", "a\0b", "__value__", "a/b", "w"]
    sh.path("m.safetensors").write_bytes(with_header({n: {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i, n in enumerate(odd)}))
    sh.run("convert", "m.safetensors", "m.h5")
    sh.run("verify", "m.h5", "--against", "m.safetensors", out=f"{len(odd)} identical")
    for name in ("\0", "a\0"):
        sh.path("n.safetensors").write_bytes(with_header({name: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}))
        sh.run("convert", "n.safetensors", "n.h5", code=12, err="ends in a NUL character")


def case_several_hdf5_files_are_ambiguous(sh):
    if not has_hdf5(sh):
        return
    [file] = sh.checkpoint("hdf5/plain_groups").iterdir()
    sh.path("two").mkdir()
    for name in ("a.h5", "b.hdf5"):
        shutil.copy(file, sh.path("two") / name)
    sh.run("inspect", "two", code=12, id="E1202", err="two: several HDF5 files: a.h5, b.hdf5")


def case_what_we_write_as_hdf5_reads_back_bit_for_bit(sh):
    if not has_hdf5(sh):
        return
    for number, name in enumerate(("torch/pt_dtypes", "safetensors/llama_tied_sharded", "safetensors/empty_and_scalar", ZERO2)):
        sh.run("convert", sh.checkpoint(name), f"{number}.h5", "--verify", "full")
        sh.run("verify", f"{number}.h5", "--against", sh.checkpoint(name), out=" 0 different, 0 only here, 0 only there")


def case_hdf5_without_its_helper_is_unsupported(sh):
    """Only the program, as if the package with ckpt-h5 were not installed."""
    sh.path("bin").mkdir()
    shutil.copy(sh.program, sh.path("bin/ckpt"))
    [file] = sh.checkpoint("hdf5/plain_groups").iterdir()
    run = subprocess.run([sh.path("bin/ckpt"), "convert", file, "o.safetensors"], cwd=sh.directory, env=sh.environment(), timeout=60,
                         stdin=subprocess.DEVNULL, capture_output=True, text=True)
    text = " ".join(run.stderr.split())
    check(run.returncode == 12 and text.count("error:") == 1 and "ckpt-h5" in text and "install the package that holds ckpt-h5" in text, text)
    check(not sh.path("o.safetensors").exists(), "something was written")


def case_no_helper_is_started_from_the_current_directory_or_by_path(sh):
    sh.path("bin").mkdir()
    shutil.copy(sh.program, sh.path("bin/ckpt"))
    sh.path("ckpt-h5").write_text("#!/bin/sh\ntouch started\n")
    sh.path("ckpt-h5").chmod(0o755)
    [file] = sh.checkpoint("hdf5/plain_groups").iterdir()
    for path in ("", ".", f"{sh.directory}"):
        environment = {**sh.environment(), "PATH": f"{path}:/usr/bin:/bin"}
        run = subprocess.run(["bin/ckpt", "inspect", file], cwd=sh.directory, env=environment, timeout=60,
                             stdin=subprocess.DEVNULL, capture_output=True, text=True)
        check(run.returncode == 12 and not sh.path("started").exists(), run.stderr)


def case_weights_alone_leave_nothing_aside(sh):
    sh.run("inspect", sh.checkpoint("safetensors/gpt2_single_file"), not_err="skipped")


def has_hdf5(sh):
    """Whether the build has the helper program."""
    return os.access(os.path.join(os.path.dirname(sh.program), "ckpt-h5"), os.X_OK)


def case_keras_and_hdf5_are_read_in_files_and_directories_under_every_suffix(sh):
    if not has_hdf5(sh):
        return
    for case, name in (("keras3_model", "model.keras"), ("keras3_weights", "model.weights.h5"), ("plain_groups", "m.hdf5"), ("plain_groups", "m.hdf")):
        sh.path(name + ".dir").mkdir()
        [file] = sh.checkpoint(f"hdf5/{case}").iterdir()
        shutil.copy(file, sh.path(name + ".dir") / name)
        for path in (f"{name}.dir/{name}", f"{name}.dir"):
            archive = "note +of the Keras archive only model.weights.h5 is read, not metadata.json, config.json"
            sh.run("inspect", path, out=["^hdf5", *([archive] if name.endswith(".keras") else [])])
            sh.run("verify", path, out="   ok   hdf5")


def case_keras_and_hdf5_that_are_cut_are_named_for_what_they_are(sh):
    if not has_hdf5(sh):
        return
    for name, first in (("model.keras", b"PK\3\4" + b"\0" * 60), ("model.weights.h5", b"\x89HDF\r\n\x1a\n" + b"\0" * 60), ("m.hdf5", b"\x89HDF\r\n\x1a\n")):
        sh.path(name + ".dir").mkdir()
        (sh.path(name + ".dir") / name).write_bytes(first)
        for path in (f"{name}.dir/{name}", f"{name}.dir"):
            sh.run("inspect", path, code=15, id="E1500", err=rf"{name}.dir/{name}: ")
    shutil.copytree(sh.checkpoint("safetensors/single"), sh.path("hub"))
    (sh.path("hub") / "tf_model.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    sh.run("inspect", "hub", out="^safetensors ")


def case_a_part_of_a_checkpoint_leads_to_the_whole(sh):
    for name, part, format in (("torch/dcp_plain", ".metadata", "dcp"), ("torch/dcp_plain", "__0_0.distcp", "dcp"), (ZERO2, "latest", "deepspeed"),
                               ("safetensors/llama_sharded", "model.safetensors.index.json", "safetensors")):
        path = sh.checkpoint(name)
        sh.run("inspect", path / part, code=12, err=rf"the\s+directory\s+{re.escape(str(path))}\s+looks\s+like\s+{format}\b")


def case_an_empty_directory_is_no_checkpoint(sh):
    sh.path("empty").mkdir()
    for words in (["inspect", "empty"], ["ls", "empty"], ["verify", "empty"], ["convert", "empty", "o"]):
        sh.run(*words, code=12, id="E1200", err="empty: the directory is empty")
    check(sorted(os.listdir(sh.directory)) == ["empty"], "something was written")


# --- what is said of it ------------------------------------------------------------------------------------------------


def case_inspect_counts_parameters_only_and_says_what_detection_saw(sh):
    sh.run("inspect", sh.checkpoint(ZERO2), out=[r"^  parameters +6 059 in 10 tensors$", "^  detected +.*latest"])
    data = sh.document("inspect", sh.checkpoint(ZERO2))["data"]
    check((data["parameters"], data["parameter_tensors"], data["tensors"]) == (6059, 10, 40), str(data))
    check(data["detected_from"], "nothing was seen")


def case_convert_says_which_checksums_it_compared(sh):
    save({"w": Tensor(range(2 << 20))}, sh.path("large.pt"))  # 8 MiB, one CRC-32 over two leaves
    sh.run("convert", "large.pt", "large.safetensors", out=r"1 source checksum OK$")
    sh.run("verify", "large.pt", out=r"^  checked     1 checksum OK \(structure, CRC-32\)$")
    sh.run("export", "large.pt", "row.npy", "--slice", "w[0:8]")  # a part of the entry: nothing to compare, and no failure
    with open(sh.path("large.pt"), "r+b") as file:
        file.seek(5 << 20)
        file.write(b"!")
    sh.run("convert", "large.pt", "damaged.safetensors", code=15, id="E1503", err=["large.pt: .*CRC-32", "^  tensor +w$", "^  file +large.pt   offset \\d+"])
    sh.run("verify", "large.pt", code=1, out=["^large.pt   DAMAGED ", r"^  damage +CRC-32 of the entry at \d+: expected [0-9a-f]{8}, got [0-9a-f]{8}   tensor w   file large.pt   offset \d+$"])
    plain = sh.checkpoint("safetensors/single")
    sh.run("convert", plain, "big", out=r"structure checked \(the source has no checksums\)$")
    sh.run("verify", plain, out="no checksums")
    sh.run("convert", "big", "again.safetensors", out=r"\d+ source hash(es)? OK$")
    check(sh.document("convert", "big", "n.safetensors")["data"]["verify"]["source_hashes"] > 0, "hashes")
    check(sh.document("convert", "large.pt", "damaged.safetensors", code=15)["data"] is None, "data of a failure")
    check(not sh.path("damaged.safetensors").exists(), "a target of damaged bytes")


def case_what_is_left_out_is_named_once(sh):
    source = sh.checkpoint("torch/fsdp2_nested_optim")
    for target, form in (("m.safetensors", "safetensors"), ("m.h5", "HDF5")):
        sh.run("convert", source, target, out=rf"^note    not written: 14 opaque blobs, which {form} cannot hold: \w", not_out="Python object")
    sh.run("convert", sh.checkpoint(ZERO2), "z.h5", out="^note    not written: 14 Python objects, which HDF5 cannot hold: lr_scheduler, ")


def case_verify_says_how_tensors_differ(sh):
    save({"a": Tensor([1, 2]), "b": Tensor([1, 2]), "c": Tensor([1, 2]), "d": Tensor([0])}, sh.path("one.pt"))
    save({"a": Tensor([1, 2]), "b": Tensor([1, 3]), "c": Tensor([1, 2], [2, 1]), "e": Tensor([0])}, sh.path("two.pt"))
    sh.run("convert", "one.pt", "half.safetensors", "--dtype", "bf16")
    sh.run("verify", "one.pt", "--against", "two.pt", code=1, out=["1 identical, 2 different, 1 only here, 1 only there", "^  different +b   1 of 2 values differ, max",
           r"^  different +c   shape \[2\] here, \[2, 1\] there$", "^  only here +d$", "^  only there +e$"])
    sh.run("verify", "one.pt", "--against", "half.safetensors", code=1, out="^  different +a   F32 here, BF16 there; all values are equal$")
    different = sh.document("verify", "one.pt", "--against", "two.pt", code=1)["data"]["against"]["different"]
    values = {"elements": 2, "differing": 1, "one_is_nan": 0, "max_absolute": 1, "max_relative": 1 / 3, "relative_norm": 1 / 10 ** 0.5}
    check(different[0] == {"name": "b", "reason": "values", "values": values}, str(different))
    check(different[1]["values"] is None, "values of different shapes")
    sh.run("diff", "one.pt", sh.checkpoint("broken/st_hole"), code=15, err=["^error: ", "st_hole/ckpt/model"], not_out="DAMAGED")


def case_damage_in_files_that_are_not_read_stops_no_conversion(sh):
    sh.run("convert", sh.checkpoint(ZERO2), "u")
    with open(sh.path("u/shards/optim/00000-00000.safetensors"), "r+b") as file:
        file.seek(20000)
        file.write(b"damaged!")
    sh.run("convert", "u", "all.safetensors", code=15, id="E1503", err=["optim/00000-00000.safetensors"])
    sh.run("convert", "u", "p.safetensors", "--only", "weights", "--weights", "param", out="1 source hash OK$")


# --- targets -----------------------------------------------------------------------------------------------------------


def case_a_target_whose_directory_is_missing_names_the_directory(sh):
    for more in ([], ["-n"]):
        sh.run("convert", sh.checkpoint(ZERO2), "no/such dir/o", *more, code=10,
               id="E1000", err=["no/such dir/o: directory no/such dir does not exist", "^hint: mkdir -p 'no/such dir'$"],
               not_out="^plan")
    sh.path("file").write_text("")
    sh.run("convert", sh.checkpoint(ZERO2), "file/o", code=2, err="file is not a directory")


def case_a_source_is_not_its_own_target(sh):
    shutil.copy(sh.checkpoint("safetensors/single") / "model.safetensors", sh.path("m.safetensors"))
    os.symlink("m.safetensors", sh.path("link.safetensors"))
    for target in ("m.safetensors", "link.safetensors"):
        for more in ([], ["--overwrite"]):
            sh.run("convert", "m.safetensors", target, *more, code=2, err="the target is the source")


def case_a_file_is_not_put_among_those_of_its_source(sh):
    shutil.copytree(sh.checkpoint("safetensors/single"), sh.path("st"))
    os.symlink("st", sh.path("link"))
    for target in ("st/o.safetensors", "link/o.h5"):
        sh.run("convert", "st", target, code=2, err="the target is inside the source")
    sh.run("convert", "st", "st/sub", out="^done ")
    sh.run("inspect", "st", out="^safetensors 1 file", not_out="^  directory")
    sh.run("inspect", "st/", out="^safetensors 1 file", not_out="^  directory")


def case_a_dry_run_tells_that_there_is_no_room(sh):
    header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (1 << 43, 1 << 43)
    with open(sh.path("huge.safetensors"), "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + (1 << 43))
    for more in ([], ["-n"]):
        sh.run("convert", "huge.safetensors", "o", *more, code=14, out="^plan .* → write 8 TiB", id="E1400", err=r"o: not enough space: 8.00 TiB needed, [\d.]+ GiB free")


def case_a_command_to_paste_survives_control_characters(sh):
    shutil.copytree(sh.checkpoint("safetensors/single"), sh.path("new\nline's\x1b[31m"))
    result = sh.run("inspect", "new\nline's\x1b[31m", out=r"^next: ckpt ls \$'new\\x0aline\\'s\\x1b\[31m'$")
    pasted = result.out.splitlines()[-1].removeprefix("next: ckpt ls ")
    check(subprocess.check_output(["bash", "-c", f"printf %s {pasted}"], text=True) == "new\nline's\x1b[31m", pasted)
    shutil.copytree(sh.checkpoint("safetensors/single"), sh.path("c1\u009bx"))
    sh.run("inspect", "c1\u009bx", out=r"^next: ckpt ls \$'c1\\xc2\\x9bx'$")


def case_names_cannot_move_the_cursor(sh):
    header = json.dumps({"a\x1b[31m\u009b2J\nb": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}, ensure_ascii=False).encode()
    sh.path("m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    result = sh.run("ls", "--tsv", "m.safetensors")
    check(result.out.splitlines()[1].startswith("a?[31m?2J?b\t"), "a control character", result)


def case_an_index_that_leads_outside_is_named(sh):
    sh.run("inspect", sh.checkpoint("broken/hf_index_path_escape"), code=15, err=r"outside the checkpoint's directory: .*\.\.")


def case_what_a_flag_cannot_do_is_said(sh):
    sh.run("convert", sh.checkpoint(ZERO2), "o.safetensors", "--shard-size", "5K", out="^note    --shard-size has no effect on a single file")
    sh.run("convert", sh.checkpoint(ZERO2), "d.safetensors", "--dtype", "fp16", out="^cast    no overflow, no new NaN")
    sh.run("convert", sh.checkpoint(ZERO2), "f", "--from", "dcp", code=12, err="not dcp: it looks like deepspeed")


def case_a_suffix_that_promises_another_form_is_refused(sh):
    for suffix in ("hdf5", "keras", "npz", "gguf"):
        sh.run("convert", sh.checkpoint(ZERO2), f"o.{suffix}", code=12, err=[f"the suffix .{suffix} means ", "--to FORMAT"])
    sh.run("convert", sh.checkpoint(ZERO2), "o.hdf5", "--to", "hdf5", "-n", out="target  hdf5, 1 file: o.hdf5")
    sh.run("convert", sh.checkpoint(ZERO2), "o.ckpt", "-n", out="target  ckpt, ")
    check(os.listdir(sh.directory) == [], "something was written")


def case_tensors_that_an_index_does_not_list_are_named(sh):
    shutil.copytree(sh.checkpoint("safetensors/llama_sharded"), sh.path("sharded"))
    sh.path("bins").mkdir()
    parts = {f"pytorch_model-0000{n}-of-00002.bin": tensors for n, tensors in ((1, weights()), (2, {"last": Tensor([7])}))}
    for file, tensors in parts.items():
        save(tensors, sh.path("bins") / file)
    every = {name: file for file, tensors in parts.items() for name in tensors}
    sh.path("bins/pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": every}))
    for name, index in (("sharded", "model.safetensors.index.json"), ("bins", "pytorch_model.bin.index.json")):
        source, target = sh.path(name), sh.path(f"{name}.safetensors")
        listed = json.loads((source / index).read_text())
        lost, kept = sorted(listed["weight_map"])[:2]
        del listed["weight_map"][lost]
        (source / index).write_text(json.dumps(listed))
        sh.run("convert", source, target, code=3, err=f"{re.escape(lost)} was left out: the index does not list it")
        check(lost not in names(sh, target) and kept in names(sh, target), str(names(sh, target)))
        sh.run("convert", source, target, "--overwrite", "--allow-skipped", err="the index does not list it")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
