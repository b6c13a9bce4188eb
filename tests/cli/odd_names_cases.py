"""A target either stores a name or refuses it before anything is written, and a dry run reports the same."""
import json
import os
import shutil

import torch_file
from runner import check, main

NAMES = {
    "empty": [""], "dot": ["."], "dots": [".."], "parts": ["a..b"], "up": ["../x"], "slash": ["a/b"], "root": ["/abs"], "nul": ["a\0b"],
    "last nul": ["a\0"], "first nul": ["\0" + "0"], "long": ["n" * 300], "line": ["a\nb"], "escape": ["\x1b[31m"], "percent": ["%"],
    "folder and file": ["a", "a.b"], "escaped": ["a/b", "a%2Fb"], "cases": ["Weight", "weight"], "value": ["a.__value__", "a"],
    "own": ["latest", "config.json", "model.safetensors.index.json", ".metadata", "manifest.json", "zero", "fp32", "optimizer_state.pt"],
    "metadata": ["__metadata__"],  # which safetensors reserves
}
DEEPSPEED = ("--zero-stage", "1", "--dp", "2", "--fresh-optimizer")
TARGETS = {
    "out.safetensors": (), "model": ("--to", "safetensors"), "out.pt": (), "folder": ("--to", "torch"), "dcp": ("--to", "dcp"), "own": ("--to", "ckpt"),
    "ds": ("--to", "deepspeed", *DEEPSPEED), "ds3": ("--to", "deepspeed", "--zero-stage", "3", "--dp", "2", "--fresh-optimizer"),
    "universal": ("--to", "deepspeed-universal"), "out.h5": (),
}


def safetensors(path, names):
    header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i, name in enumerate(names)}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(range(1, 4 * len(names) + 1)))
    return path


def make_source(sh, word, names):
    if word != "metadata":
        return safetensors(sh.path("source.safetensors"), names)
    torch_file.save({name: torch_file.Tensor([1.0]) for name in names}, sh.path("source.pt"))
    return sh.path("source.pt")


def trained(names, values=4):
    """A training state whose optimizer numbers its parameters."""
    state = {i: {"step": 3, "exp_avg": torch_file.Tensor([0.5] * values), "exp_avg_sq": torch_file.Tensor([0.25] * values)} for i in range(len(names))}
    group = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0, "params": list(range(len(names)))}
    return {"model": {name: torch_file.Tensor([float(i)] * values) for i, name in enumerate(names)},
            "optimizer": {"state": state, "param_groups": [group]}, "step": 3}


def names_in(sh, path):
    return {tensor["name"] for tensor in sh.document("ls", path)["data"]["tensors"]}


def refused(result):
    return [line for line in result.err.splitlines() if line.startswith("error: ")]


def attempt(sh, words):
    """Runs the words; (exit code, error lines, whether the directory is as before)."""
    before = sorted(os.listdir(sh.directory))
    for code in (0, 2, 3, 12):
        try:
            result = sh.run(*words, code=code)
        except AssertionError as error:
            if f"not {code}" not in str(error).splitlines()[0]:
                raise
            failure = error
            continue
        return code, refused(result), sorted(os.listdir(sh.directory)) == before
    raise failure


def case_every_target_holds_a_name_or_refuses_it_when_planning(sh):
    held = set()
    for word, names in NAMES.items():
        weights = make_source(sh, word, names)
        torch_file.save(trained(names), sh.path("trained.pt"))
        for target, options in TARGETS.items():
            source = sh.path("trained.pt") if target == "universal" else weights
            words = ("convert", source, sh.path(target), *options)
            if target.startswith("ds") and all(names):  # a safetensors file has no order
                sh.path("order.json").write_text(json.dumps({"ckpt-map": 1, "parameters": list(names)}))
                words += ("--map", "order.json")
            planned, said, untouched = attempt(sh, (*words, "-n"))
            check(untouched, f"{word}, {target}: a dry run wrote something")
            done, said_then, untouched = attempt(sh, words)
            check((planned, said) == (done, said_then), f"{word}, {target}: planned {planned} {said}, then {done} {said_then}")
            if done == 12:
                check(untouched and len(said) == 1, f"{word}, {target}: refused, but something was written, or {said}")
                continue
            check(done in (0, 3), f"{word}, {target}: {done} {said}")
            held.add((word, target))
            # Torch's own files may hold a value without a key, which gets this name.
            expected = {"tensor"} if (word, target) in (("empty", "out.pt"), ("empty", "folder")) else set(names)
            check(expected <= names_in(sh, sh.path(target)), f"{word}, {target}: {names_in(sh, sh.path(target))}")
            is_equal = expected == set(names) and not target.startswith(("ds", "universal"))  # those add masters
            sh.run("verify", sh.path(target), "--against", source, code=0 if is_equal else 1, out=" 0 different")
            place = sh.path(target)
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    for target in TARGETS:
        is_deepspeed = target.startswith(("ds", "universal"))
        check((("empty", target) in held) != is_deepspeed, f"the empty name and {target}")
        check(("cases", target) in held and ("escape", target) in held, target)
        check((("slash", target) in held) == (target != "universal"), f"a slash and {target}")
        check((("metadata", target) in held) == (target not in ("out.safetensors", "model", "own")), f"__metadata__ and {target}")


def case_arrays_get_file_names_of_their_own(sh):
    for word, names in NAMES.items():
        source = make_source(sh, word, names)
        sh.run("export", source, sh.path("arrays"), "--to", "npy")
        files = os.listdir(sh.path("arrays"))
        check(len(files) == len(names) and all(f.endswith(".npy") and len(f) > 4 for f in files), f"{word}: {files}")
        shutil.rmtree(sh.path("arrays"))


def case_an_empty_name_is_the_reason_that_deepspeed_gives(sh):
    torch_file.save(trained(["", "w"]), sh.path("source.pt"))
    for stage in "0123":
        sh.run("convert", "source.pt", "out", "--to", "deepspeed", "--zero-stage", stage, "--dp", "1", "-n", code=12,
               err=["^error: out: '': no module of torch has a parameter or buffer with an empty part in its name", "--map FILE"])
    sh.run("convert", "source.pt", "out", "--to", "deepspeed-universal", "-n", code=12, err="'': no module of torch")
    sh.run("convert", "source.pt", "kept", "--to", "ckpt")
    sh.run("convert", "kept", "out", "--to", "deepspeed", "--zero-stage", "1", "--dp", "1", "-n", code=12, err="'': no module of torch")


def case_a_slot_that_names_a_path_is_refused(sh):
    source = trained(["w"])
    for slot in ("../../up", "fp32", "s" * 260):
        source["optimizer"]["state"][0] = {"step": 3, slot: torch_file.Tensor([0.5] * 4)}
        torch_file.save(source, sh.path("source.pt"))
        sh.run("convert", "source.pt", "out", "--to", "deepspeed-universal", "-n", code=12, err="cannot be the name of a file|another file has that name")
        sh.run("convert", "source.pt", "out", "--to", "deepspeed-universal", code=12, err="cannot be the name of a file|another file has that name")
    check(sorted(os.listdir(sh.directory)) == ["source.pt"], str(os.listdir(sh.directory)))


def case_a_tag_is_a_name_of_folders(sh):
    torch_file.save(trained(["w"]), sh.path("source.pt"))
    for tag in ("..", ".", "/abs", "a/../b", "a//b", "a/", os.fsdecode(b"\xff"), "latest", "latest/x", "n" * 300):
        for more in (("-n",), ()):
            sh.run("convert", "source.pt", "out", "--to", "deepspeed", "--zero-stage", "1", "--dp", "1", "--tag", tag, *more,
                   code=2, err="cannot be a tag|is not a directory name")
    check(sorted(os.listdir(sh.directory)) == ["source.pt"], str(os.listdir(sh.directory)))


def case_a_tensor_named_as_the_archives_own_is_that_tensor(sh):
    source = trained(["w"])
    source |= {"\0" + "0": torch_file.Tensor([7.0]), "\0x": torch_file.Tensor([8.0])}
    torch_file.save(source, sh.path("source.pt"))
    sh.run("convert", "source.pt", "out", "--to", "deepspeed", "--zero-stage", "1", "--dp", "1")
    names = names_in(sh, "out")
    check({"\0" + "0", "\0x"} <= names, str(names))
    sh.run("verify", "out", "--against", "source.pt", code=1, out=" 0 different")


def case_parameters_without_elements_keep_what_deepspeed_keeps(sh):
    source = trained(["w", "e"])
    source["model"]["e"] = torch_file.Tensor([], shape=[3, 0])
    for slot in ("exp_avg", "exp_avg_sq"):
        source["optimizer"]["state"][1][slot] = torch_file.Tensor([], shape=[3, 0])
    torch_file.save(source, sh.path("source.pt"))
    sh.run("convert", "source.pt", "whole", "--to", "deepspeed", "--zero-stage", "0", "--dp", "1", not_out="without elements")
    check({"optimizer.state.e.exp_avg", "optimizer.state.w.exp_avg"} <= names_in(sh, "whole"), str(names_in(sh, "whole")))
    sh.run("convert", "whole", "again", "--to", "deepspeed", "--zero-stage", "0", "--dp", "1", not_out="without elements")
    left_out = "^note    left out: the optimizer state of 1 parameter without elements: e, which DeepSpeed's optimizers do not have"
    for stage in "123":
        sh.run("convert", "source.pt", "cut" + stage, "--to", "deepspeed", "--zero-stage", stage, "--dp", "2", out=left_out)
        check("e" in names_in(sh, "cut" + stage), stage)
    sh.run("convert", "source.pt", "half", "--to", "deepspeed", "--zero-stage", "0", "--dp", "1", "--dtype", "bf16", out=left_out)


def case_options_of_groups_that_are_written_are_not_called_left_out(sh):
    for name in ("fsdp2_flat_optim", "fsdp2_nested_optim"):
        sh.run("convert", sh.checkpoint("torch/" + name), name, "--to", "deepspeed", "--zero-stage", "1", "--dp", "2", not_out="left out")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
