"""Results of --to deepspeed, loaded by DeepSpeed itself at another stage and size: the values are those of the source, bit
for bit, and training continues like the run that never stopped. Runs of one launch share the start of Python: a launch
costs more than a run."""
import json

import pytest
import torch

from conftest import GOLDEN
from test_deepspeed import launch
from truth import from_safetensors

SCRIPT = "deepspeed_resume.py"
STAGES = {"z1": 1, "z2": 2, "z3": 3, "z0": 0}


def runs(out, world, cases):
    pytest.importorskip("deepspeed")
    launch(world, SCRIPT, out, cases)


def told(out, name):
    return json.loads((out / f"{name}.json").read_text())


def same(out, a, b, when):
    """Every tensor of a is b's, bit for bit; a buffer may have another type (DeepSpeed casts them with the module, or not)."""
    first, second = (from_safetensors(out / f"{n}.{when}.safetensors") for n in (a, b))
    assert first and set(first) == set(second)
    different = [k for k in first if first[k] != second[k] and "buffer/" not in k]
    assert not different, f"{a} and {b}, {when}: {different}"


def same_facts(out, a, b):
    first, second = told(out, a), told(out, b)
    for key in ("steps", "groups", "global_steps", "scheduler", "scale"):
        if first.get(key) is not None and second.get(key) is not None:
            assert first[key] == second[key], f"{a} and {b}: {key}"


def native(stage, dtype="fp32"):
    return {"stage": stage, "dtype": dtype}


# name of the source's run, stage of the target, ranks of the target
CELLS = [("z2", 3, 2), ("z3", 1, 2), ("z0", 2, 2), ("pt", 3, 2), ("dcp", 2, 2), ("h1", 2, 2), ("b2", 3, 2)]
SOURCES = {"z2": native(2), "z3": native(3), "z0": native(0), "h1": native(1, "fp16"), "b2": native(2, "bf16"),
           "pt": {"kind": "torch"}, "dcp": {"kind": "fsdp"}}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Four ranks, two steps, saved, three more."""
    out = tmp_path_factory.mktemp("sources")
    runs(out, 4, [{"name": name, "warm": 2, "save": str(out / name) + (".pt" if name == "pt" else ""), **case}
                  for name, case in SOURCES.items()])
    return out


def target_case(name, source, stage, directory):
    plain = SOURCES[source].get("kind") is not None
    case = {"name": name, "seed": 5, "load": str(directory), **native(stage, SOURCES[source].get("dtype", "fp32"))}
    # A loop of torch has no scheduler. Where the source has a limit of the gradient norm it is the source's that counts.
    return case | ({"scheduler": False, "step": 2, "options": {"load_lr_scheduler_states": False}} if plain else {"clip": 2e6})


def resumed(ckpt, sources, tmp_path, cells, world):
    cases = []
    for source, stage, _ in cells:
        name = f"{source}_{stage}"
        path = sources / (source + (".pt" if source == "pt" else ""))
        ckpt("convert", path, tmp_path / name, "--to", "deepspeed", "--zero-stage", str(stage), "--dp", str(world))
        cases.append(target_case(name, source, stage, tmp_path / name))
    # The uninterrupted runs of the targets' own stages: DeepSpeed rounds differently from stage to stage.
    cases += [{"name": f"u{stage}", "warm": 2, **native(stage)} for stage in sorted({s for _, s, _ in cells})]
    runs(tmp_path, world, cases)
    for source, stage, _ in cells:
        for when in ("held", "end"):
            (tmp_path / f"{source}.{when}.safetensors").write_bytes((sources / f"{source}.{when}.safetensors").read_bytes())
        (tmp_path / f"{source}.json").write_bytes((sources / f"{source}.json").read_bytes())


def test_deepspeed_resumes_at_another_stage_and_size(ckpt, sources, tmp_path):
    resumed(ckpt, sources, tmp_path, CELLS, 2)
    for source, stage, _ in CELLS:
        name = f"{source}_{stage}"
        same(tmp_path, source, name, "held")
        same_facts(tmp_path, source, name)
        if SOURCES[source].get("kind") is None:
            assert told(tmp_path, name)["client"] == {"note": "kept", "numbers": {"seen": 14}}
    assert told(tmp_path, "h1_2")["clip"] == 1e6
    # The next three steps. Where the stage stays within 0 to 2, DeepSpeed itself computes the same bits from the same state.
    for source, name in (("dcp", "dcp_2"), ("h1", "h1_2"), ("u3", "z2_3"), ("u1", "z3_1"), ("u2", "z0_2")):
        same(tmp_path, source, name, "end")
        assert told(tmp_path, source)["losses"] == told(tmp_path, name)["losses"], name
    for source, name, close in (("pt", "pt_3", 1e-6), ("b2", "b2_3", 1e-2)):
        assert told(tmp_path, name)["losses"] == pytest.approx(told(tmp_path, source)["losses"], rel=close), name


def test_there_and_back_is_the_same_checkpoint(ckpt, sources, tmp_path):
    for source, stage in (("z2", 3), ("z3", 1), ("b2", 0), ("h1", 3)):
        there, back = tmp_path / f"{source}_there", tmp_path / f"{source}_back"
        ckpt("convert", sources / source, there, "--to", "deepspeed", "--zero-stage", str(stage), "--dp", "5")
        ckpt("convert", there, back, "--to", "deepspeed", "--zero-stage", str(SOURCES[source]["stage"]), "--dp", "4")
        ckpt("verify", back, "--against", sources / source)
        assert sorted(p.name for p in back.glob("*/*.pt")) == sorted(p.name for p in (sources / source).glob("*/*.pt"))


def test_every_stage_resumes_from_one_universal_directory(ckpt, sources, tmp_path):
    """At another size too. DeepSpeed links no moments for its own queries then, so training says what was loaded. Stage 3 gives
    all groups the options of the first one, also from DeepSpeed's own directory: it is compared for its first step alone."""
    ckpt("convert", sources / "z2", tmp_path / "u", "--to", "deepspeed-universal")
    ckpt("convert", sources / "z2", tmp_path / "bare", "--to", "deepspeed-universal", "--zero-stage", "3")  # as before DeepSpeed 0.19
    assert len(list(tmp_path.glob("bare/*/zero/*/fp32.pt"))) > 1
    assert all(isinstance(torch.load(path), torch.Tensor) for path in tmp_path.glob("bare/*/zero/*/fp32.pt"))
    ckpt("verify", tmp_path / "bare", "--against", tmp_path / "u")
    cases = [{"name": name, "stage": stage, "dtype": "fp32", "universal": True, "load": str(tmp_path / source)}
             for name, stage, source in (("u1", 1, "u"), ("u2", 2, "u"), ("u3", 3, "u"), ("bare", 3, "bare"))]
    runs(tmp_path, 2, cases)
    before = told(sources, "z2")
    for name, stage in (("u1", 1), ("u2", 2), ("u3", 3), ("bare", 3)):
        after = told(tmp_path, name)
        assert (after["steps"], after["global_steps"]) == (before["steps"], before["global_steps"])
        shown = 3 if stage < 3 else 1
        assert after["losses"][:shown] == before["losses"][:shown], name


NATIVE = ["bf16opt_dp2", "zero1_fp16_dp2", "zero2_bf16_dp2_offload_cpu", "zero2_bf16_dp4", "zero2_fp32_dp3_frozen", "zero2_fp32_dp3_round_robin",
          "zero3_bf16_dp3_frozen", "zero3_bf16_dp4", "zero3_fp32_dp3_tied_tiny"]


def tensors_of(value, path=()):
    """The tensors of nested state by their paths, and what else says where elements lie."""
    import torch
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, (dict, list, tuple)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from tensors_of(item, (*path, key))
    elif path and path[0] in ("partition_count", "group_paddings"):
        yield path, torch.tensor(value)


def in_the_files_as_deepspeed_wrote_it(name, directory):
    import torch
    compared = 0
    for theirs in sorted((GOLDEN / "deepspeed" / name / "ckpt").glob("*/*_optim_states.pt")):
        a = torch.load(theirs, weights_only=False)["optimizer_state_dict"]
        b = torch.load(directory / theirs.parent.name / theirs.name, weights_only=False)["optimizer_state_dict"]
        ours = dict(tensors_of(b))
        for path, tensor in tensors_of(a):
            mine, whole = ours[path].flatten(), tensor.flatten()
            assert len(mine) == len(whole) or (name == "bf16opt_dp2" and path[0] == "single_partition_of_fp32_groups")
            used = mine != 0  # padding is zero in ours, and anything in stage 3's own
            assert used.any() or not whole[:len(mine)].any() or a.get("zero_stage") == 3, path
            assert mine.dtype == whole.dtype and torch.equal(mine[used], whole[:len(mine)][used]), path
            compared += 1
    assert compared > 4


@pytest.mark.parametrize("name", NATIVE)
def test_a_state_in_its_own_layout_is_in_the_files_as_deepspeed_wrote_it(ckpt, out, name):
    pytest.importorskip("deepspeed")
    ckpt("convert", GOLDEN / "deepspeed" / name / "ckpt", out / "same", "--to", "deepspeed")
    in_the_files_as_deepspeed_wrote_it(name, out / "same")


@pytest.mark.parametrize("name", ["zero2_bf16_dp4", "zero2_fp32_dp3_round_robin"])
def test_so_is_a_state_that_was_in_the_universal_format(ckpt, out, name):
    """The order of a flat tensor is that of the optimizer's groups, which the universal format keeps."""
    pytest.importorskip("deepspeed")
    ckpt("convert", GOLDEN / "deepspeed" / name / "ckpt", out / "universal")
    ckpt("convert", out / "universal", out / "same", "--to", "deepspeed")
    in_the_files_as_deepspeed_wrote_it(name, out / "same")
