"""torch.distributed.checkpoint reads the result of `ckpt convert --to dcp`: into plain dicts, into FSDP2 modules on
other meshes with their optimizers, and back into torch.save files."""
import json
import os
import pathlib
import struct
import subprocess
import sys

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from conftest import GOLDEN
from truth import differences, expected, from_safetensors, same_names

SAFETENSORS_NAMES = {torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.uint16: "U16",
                     torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32", torch.uint32: "U32",
                     torch.float32: "F32", torch.complex64: "C64", torch.float64: "F64", torch.int64: "I64",
                     torch.uint64: "U64", torch.complex128: "C128", torch.float8_e4m3fn: "F8_E4M3",
                     torch.float8_e5m2: "F8_E5M2", torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
                     torch.float8_e5m2fnuz: "F8_E5M2FNUZ", torch.float8_e8m0fnu: "F8_E8M0",
                     torch.float4_e2m1fn_x2: "F4"}


def loaded(directory):
    """Tensors and Python objects of a DCP directory, by key, as dcp.load gives them to one process."""
    known = FileSystemReader(str(directory)).read_metadata().state_dict_metadata
    state = {key: torch.empty(meta.size, dtype=meta.properties.dtype) if isinstance(meta, TensorStorageMetadata) else None
             for key, meta in known.items()}
    dcp.load(state, checkpoint_id=str(directory), no_dist=True)
    tensors = {key: value for key, value in state.items() if isinstance(known[key], TensorStorageMetadata)}
    return tensors, {key: value for key, value in state.items() if key not in tensors}


def as_truth(tensors):
    """As truth.py holds tensors: dtype as safetensors calls it, shape, bytes."""
    out = {}
    for name, tensor in tensors.items():
        shape = tuple(tensor.shape)
        if tensor.dtype == torch.float4_e2m1fn_x2:
            shape = (*shape[:-1], 2 * shape[-1])
        data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        out[name] = (SAFETENSORS_NAMES[tensor.dtype], shape, data)
    return out


def planner_data(directory):
    return FileSystemReader(str(directory)).read_metadata().planner_data


@pytest.mark.parametrize("name,words", [
    ("dcp_plain", ["--ranks", "3"]), ("dcp_plain", ["--ranks", "6", "--placement", "*.cube=S1:3,S2", "--placement", "*.vec=R"]),
    ("dcp_2d_s0_s1", ["--ranks", "3"]), ("dcp_all_dtypes", ["--ranks", "2", "--placement", "*=S1"]),
    ("fsdp2_nested_optim", ["--ranks", "1"]), ("fsdp2_flat_optim", ["--ranks", "5"]), ("tp2_fsdp2_strided", []),
])
def test_another_layout_of_a_dcp_checkpoint_loads_the_same(name, words, ckpt, out):
    source = GOLDEN / "torch" / name / "ckpt"
    ckpt("convert", source, out / "dcp", "--to", "dcp", *words)
    tensors, objects = loaded(out / "dcp")
    wanted_tensors, wanted_objects = loaded(source)
    assert list(sorted(tensors)) == list(sorted(wanted_tensors))
    assert same_names(as_truth(wanted_tensors), as_truth(tensors)) == []
    assert objects == wanted_objects
    assert planner_data(out / "dcp") == planner_data(source)
    lines, compared = differences(GOLDEN / "torch" / name, as_truth(tensors))
    assert compared and lines == []


def test_there_and_back_is_equal(ckpt, out):
    """DCP of 4 -> DCP of 3 -> universal -> DCP of 4, Python objects and all."""
    source = GOLDEN / "torch" / "dcp_plain" / "ckpt"
    ckpt("convert", source, out / "three", "--to", "dcp", "--ranks", "3")
    ckpt("convert", out / "three", out / "universal")
    ckpt("convert", out / "universal", out / "four", "--to", "dcp", "--ranks", "4")
    ckpt("verify", out / "universal", "--against", source)
    tensors, objects = loaded(out / "four")
    wanted_tensors, wanted_objects = loaded(source)
    assert as_truth(tensors) == as_truth(wanted_tensors)
    assert objects == wanted_objects
    assert planner_data(out / "four") == planner_data(source)


def test_torchs_own_converter_rebuilds_the_nested_state(ckpt, out):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    source = GOLDEN / "torch" / "fsdp2_nested_optim" / "ckpt"
    ckpt("convert", source, out / "dcp", "--to", "dcp", "--ranks", "2")
    states = []
    for directory in (source, out / "dcp"):
        dcp_to_torch_save(str(directory), str(out / "state.pt"))
        states.append(torch.load(out / "state.pt", weights_only=False))
    assert list(states[1]) == list(states[0])
    assert states[0]["optimizer"]["param_groups"] == states[1]["optimizer"]["param_groups"]
    assert all(torch.equal(states[0]["model"][n], states[1]["model"][n]) for n in states[0]["model"])


def resumed(directory, out, spec, world, *words):
    """The state of FSDP2 modules that resumed from a directory, by the truth's names, and the parameter groups."""
    model = out.parent / "model.json"
    model.write_text(json.dumps(spec))
    driver = pathlib.Path(__file__).with_name("dcp_ranks.py")
    run = subprocess.run([sys.executable, driver, directory, out, model, "--world", str(world), *words],
                         capture_output=True, text=True, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stderr[-4000:]
    with safe_open(out, "pt") as file:
        return from_safetensors(out), json.loads(file.metadata()["groups"])


def spec_of(case, groups=None):
    """The model of a case, as dcp_ranks.py builds it."""
    truth = expected(case)
    about = json.loads((case / "about.json").read_text())
    shapes = {role: {key.split("/", 1)[1]: list(value[1]) for key, value in truth.items() if key.startswith(role + "/")}
              for role in ("param", "buffer")}
    tied = {name: other for name, other in about["aliases"].items() if name in shapes["param"]}
    groups = groups or [[name for name in shapes["param"] if name not in tied]]
    return {"parameters": shapes["param"], "buffers": shapes["buffer"], "tied": tied, "groups": groups}


@pytest.mark.parametrize("name,world,words", [
    ("fsdp2_flat_optim", 2, ["--flatten"]),
    pytest.param("fsdp2_nested_optim", 3, [], marks=pytest.mark.slow),
    pytest.param("fsdp2_nested_optim", 2, ["--replicate", "2"], marks=pytest.mark.slow),
])
def test_fsdp2_resumes_on_another_mesh(name, world, words, ckpt, out):
    """Training continues as from the framework's own directory."""
    case = GOLDEN / "torch" / name
    ckpt("convert", case / "ckpt", out / "dcp", "--to", "dcp", "--ranks", "5")
    theirs, their_groups = resumed(case / "ckpt", out / "theirs.safetensors", spec_of(case), world, "--steps", "2", *words)
    ours, our_groups = resumed(out / "dcp", out / "ours.safetensors", spec_of(case), world, "--steps", "2", *words)
    assert ours == theirs
    assert our_groups == their_groups and our_groups[0]["lr"] == 1e-3
    truth = expected(case)
    assert same_names(truth, ours) == []
    assert any(key.startswith("later/") and ours[key] != ours[key.removeprefix("later/")] for key in ours)


@pytest.mark.parametrize("name,words,world", [
    ("deepspeed/zero2_fp32_dp3_frozen", [], 2),
    pytest.param("deepspeed/zero3_bf16_dp4", ["--weights", "master"], 3, marks=pytest.mark.slow),
    pytest.param("deepspeed/zero2_bf16_dp4", ["--weights", "master"], 2, marks=pytest.mark.slow),
    pytest.param("deepspeed/zero3_fp32_dp3_tied_tiny", [], 3, marks=pytest.mark.slow),
    pytest.param("deepspeed/zero2_bf16_dp2_offload_cpu", ["--weights", "master"], 2, marks=pytest.mark.slow),
    pytest.param("deepspeed/universal_from_zero3_bf16_dp4", ["--weights", "master"], 2, marks=pytest.mark.slow),
])
def test_fsdp2_resumes_a_deepspeed_run(name, words, world, ckpt, out):
    case = GOLDEN / name
    ckpt("convert", case / "ckpt", out / "dcp", "--to", "dcp", "--ranks", "3", *words)
    _, objects = loaded(out / "dcp")
    members = []
    while f"optimizer.param_groups.{len(members)}.params" in objects:
        members.append(objects[f"optimizer.param_groups.{len(members)}.params"])
    spec = spec_of(case, members)
    found, groups = resumed(out / "dcp", out / "found.safetensors", spec, world)
    truth = expected(case)
    for key, wanted in truth.items():
        role, _, parameter = key.partition("/")
        if role in ("exp_avg", "exp_avg_sq"):
            assert found[key] == wanted, key
        elif role == "master":
            assert found["param/" + parameter] == wanted, key
        elif role == "param" and wanted[0] == "F32":
            assert found[key] == wanted, key
    steps = {value[2] for key, value in found.items() if key.startswith("state/step/")}
    assert steps == {struct.pack("<f", json.loads((case / "about.json").read_text())["step"])}
    for number, group in enumerate(groups):
        assert sorted(group["params"]) == sorted(members[number])
        assert group["lr"] == objects[f"optimizer.param_groups.{number}.lr"]


@pytest.mark.parametrize("form", ["universal", "safetensors"])
def test_weights_alone_are_a_flat_state_dict(form, ckpt, out):
    source = GOLDEN / "safetensors" / "llama_sharded" / "ckpt"
    wanted = from_safetensors(source)
    if form == "universal":
        ckpt("convert", source, out / "universal")
        source = out / "universal"
    ckpt("convert", source, out / "dcp", "--to", "dcp", "--ranks", "2")
    tensors, _ = loaded(out / "dcp")
    assert as_truth(tensors) == wanted
    assert planner_data(out / "dcp") == {name: (name,) for name in wanted}


def test_numbered_optimizer_state_gets_the_names_of_its_parameters(ckpt, out):
    case = GOLDEN / "torch" / "pt_trainer"
    ckpt("convert", case / "ckpt" / "last.ckpt", out / "dcp", "--to", "dcp", "--ranks", "3")
    tensors, objects = loaded(out / "dcp")
    found = as_truth(tensors)
    compared = 0
    for key, wanted in expected(case).items():
        role, _, name = key.partition("/")
        if role == "param":
            stored = f"model.model.{name}"  # the LightningModule calls it `model`
        elif role in ("exp_avg", "exp_avg_sq"):
            stored = f"optimizer.state.model.{name}.{role}"
        else:
            continue
        assert found[stored] == wanted, key
        compared += 1
    assert compared >= 20
    assert objects["optimizer.param_groups.0.params"]


def named_state():
    """A run whose optimizer state is keyed by names, and values of every nesting, as torch's own DCP would save them."""
    model = torch.nn.Linear(3, 2)
    return {
        "model": dict(model.state_dict()),
        "optimizer": {
            "state": {name: {"exp_avg": torch.randn_like(value), "step": torch.tensor(3.0)}
                      for name, value in model.state_dict().items()},
            "param_groups": [{"lr": 0.5, "betas": (0.9, 0.99), "params": ["weight", "bias"], "milestones": [1, 2]}],
        },
        "lists": [torch.ones(2), {"deep": [1, [2, "x"]]}],
        "gaps": {"seen": [3, 4, 5], "none": []},
    }


@pytest.mark.parametrize("way", ["direct", "universal"])
def test_values_of_a_torch_file_are_the_items_that_torch_makes(way, ckpt, out):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    state = named_state()
    torch.save(state, out / "state.pt")
    dcp.save(state, checkpoint_id=out / "own", no_dist=True)
    if way == "universal":
        ckpt("convert", out / "state.pt", out / "u")
    ckpt("convert", out / "u" if way == "universal" else out / "state.pt", out / "dcp", "--to", "dcp", "--ranks", "2")
    paths = [FileSystemReader(out / name).read_metadata().planner_data for name in ("own", "dcp")]
    assert paths[0] == paths[1]
    dcp_to_torch_save(str(out / "dcp"), str(out / "back.pt"))
    back = torch.load(out / "back.pt", weights_only=False)
    assert back["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]
    assert back["lists"][1] == state["lists"][1] and back["gaps"] == state["gaps"]
    assert torch.equal(back["optimizer"]["state"]["bias"]["exp_avg"], state["optimizer"]["state"]["bias"]["exp_avg"])


def test_a_list_of_tensors_and_keys_that_are_numbers_load(ckpt, out):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    for name, state in (("list", [torch.ones(2), {"a": torch.zeros(3)}]), ("numbers", {0: torch.ones(2), -3: torch.zeros(3), "x": 1})):
        torch.save(state, out / f"{name}.pt")
        ckpt("convert", out / f"{name}.pt", out / name, "--to", "dcp")
        dcp_to_torch_save(str(out / name), str(out / "back.pt"))
        back = torch.load(out / "back.pt", weights_only=False)
        assert set(back) == ({"0", "1"} if name == "list" else {"0", "-3", "x"})
        assert torch.equal(back["0"], torch.ones(2))


def test_objects_of_unknown_classes_are_named_where_they_become_bytes(ckpt, out):
    import datetime
    import io
    state = {"w": torch.ones(2), "when": datetime.datetime(2024, 1, 2)}
    dcp.save(state, checkpoint_id=out / "own", no_dist=True)
    run = ckpt("convert", out / "own", out / "back.pt")
    assert "a Python object of a class that ckpt does not know, written as bytes" in run.stderr and "when" in run.stderr
    held = torch.load(out / "back.pt", weights_only=True)["when"]
    assert torch.load(io.BytesIO(held.numpy().tobytes()), weights_only=False) == state["when"]


def test_equal_objects_are_equal_whatever_their_pickles_share(ckpt, out):
    """A string that occurs twice is one object or two: their pickles differ."""
    text = "a longer string"
    objects = {"shared": [text, text], "apart": [text, "".join(list(text))], "other": [text, text + "."], "tuple": (text, text)}
    for name, value in objects.items():
        dcp.save({"w": torch.ones(4), "o": value}, checkpoint_id=str(out / name), no_dist=True)
    for name in objects:
        said = ckpt("diff", out / "shared", out / name)
        assert ("that differ: " in said.stdout) == (name in ("other", "tuple")), said.stdout


def test_two_ranks_write_the_same_bytes(ckpt, out):
    source = GOLDEN / "torch" / "dcp_plain" / "ckpt"
    ckpt("convert", source, out / "one", "--to", "dcp", "--ranks", "3")
    run = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", ckpt.program, "convert", source,
                          out / "two", "--to", "dcp", "--ranks", "3"], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    files = sorted(path.name for path in (out / "one").iterdir())
    assert files == [".metadata", "__0_0.distcp", "__1_0.distcp", "__2_0.distcp"]
    assert [(out / "two" / name).read_bytes() for name in files] == [(out / "one" / name).read_bytes() for name in files]
