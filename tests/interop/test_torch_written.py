"""torch.save files that ckpt writes: torch loads them with weights_only and mmap, with the values of the source."""
import math
import zipfile

import pytest

from conftest import GOLDEN

SAME = ("torch/pt_state_dict/ckpt/model.pt", "torch/pt_trainer/ckpt/last.ckpt", "torch/pt_trainer/ckpt/optimizer.pt",
        "torch/pt_dtypes/ckpt/dtypes.pt", "torch/pt_nocrc/ckpt/file.pt", "torch/pt_legacy/ckpt/legacy.pt")
GENUINE = ("torch/pt_state_dict/ckpt/model.pt", "torch/pt_values/ckpt/values.pt")
WEIGHTS = ("deepspeed/zero3_bf16_dp4", "torch/dcp_plain", "torch/pt_trainer", "safetensors/gpt2_tied")


def same(one, other, path=""):
    import torch
    assert type(one) is type(other), path
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape, one.requires_grad) == (other.dtype, other.shape, other.requires_grad), path
        bits = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (one, other) if t.numel()]
        assert not bits or torch.equal(*bits), path
    elif isinstance(one, dict):
        assert list(one) == list(other), path
        assert getattr(one, "_metadata", None) == getattr(other, "_metadata", None), path
        for key in one:
            same(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), path
        for i, pair in enumerate(zip(one, other)):
            same(*pair, f"{path}.{i}")
    elif isinstance(one, float) and math.isnan(one):
        assert math.isnan(other), path
    else:
        assert one == other, path


def load(path):
    import torch
    assert zipfile.ZipFile(path).testzip() is None
    return torch.load(path, weights_only=True, mmap=True)


@pytest.mark.parametrize("name", SAME)
def test_a_torch_file_comes_out_as_the_same_object(ckpt, out, name):
    import torch
    target = out / "file.pt"
    ckpt("convert", str(GOLDEN / name), str(target), "--verify", "full")
    same(torch.load(GOLDEN / name, weights_only=True), load(target))


@pytest.mark.parametrize("name", GENUINE)
def test_a_file_of_this_torch_comes_out_byte_for_byte_but_for_its_serialization_id(ckpt, out, name):
    source = GOLDEN / name
    target = out / source.name
    ckpt("convert", str(source), str(target))
    one, other = source.read_bytes(), target.read_bytes()
    assert len(one) == len(other)
    different = [i for i, pair in enumerate(zip(one, other)) if pair[0] != pair[1]]
    at = one.index(zipfile.ZipFile(source).read(f"{source.stem}/.data/serialization_id"))
    directory = one.index(b"PK\x01\x02")
    assert all(at <= i < at + 48 or i > directory for i in different) and len(different) <= 48


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_any_source_are_a_flat_state_dict(ckpt, out, name):
    import torch
    target = out / "weights.pt"
    ckpt("convert", str(GOLDEN / name / "ckpt"), str(target), "--only", "weights")
    state = load(target)
    assert state and all(isinstance(value, torch.Tensor) for value in state.values())


def test_deepspeed_becomes_model_and_optimizer_as_torch_optim_has_it(ckpt, out):
    import torch
    target = out / "all.pt"
    ckpt("convert", str(GOLDEN / "deepspeed/zero3_bf16_dp4/ckpt"), str(target), "--verify", "full")
    state = load(target)
    names = [name for group in state["optimizer"]["param_groups"] for name in group["param_names"]]
    masters = state["master_weights"]
    from safetensors.torch import load_file
    truth = load_file(GOLDEN / "deepspeed/zero3_bf16_dp4/truth.safetensors")
    for i, name in enumerate(names):
        assert torch.equal(masters[name], truth[f"master/{name}"]), name
        assert torch.equal(state["model"][name], truth[f"param/{name}"]), name
        for slot in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(state["optimizer"]["state"][i][slot], truth[f"{slot}/{name}"]), name
    parameters = [torch.nn.Parameter(masters[name].clone()) for name in names]
    groups, first = [], 0
    for group in state["optimizer"]["param_groups"]:
        groups.append({"params": parameters[first:first + len(group["params"])]})
        first += len(group["params"])
    optimizer = torch.optim.AdamW(groups)
    optimizer.load_state_dict(state["optimizer"])
    assert float(optimizer.state[parameters[0]]["step"]) == 3
    optimizer.step()


def test_named_parameters_keep_their_state_through_the_universal_format(ckpt, out):
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.named_parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, out / "source.pt")
    ckpt("convert", out / "source.pt", out / "u")
    ckpt("convert", out / "u", out / "back.pt")
    back = load(out / "back.pt")["optimizer"]
    assert back["param_groups"] == optimizer.state_dict()["param_groups"]
    resumed = torch.optim.AdamW(model.named_parameters())
    resumed.load_state_dict(back)
    for parameter in model.parameters():
        assert torch.equal(resumed.state[parameter]["exp_avg"], optimizer.state[parameter]["exp_avg"])


@pytest.mark.parametrize("way", ["universal", "dcp"])
def test_tied_weights_of_nested_state_keep_their_keys(ckpt, out, way):
    import torch
    weight, view = torch.nn.Parameter(torch.randn(5, 3)), torch.arange(6.0)
    state = {"model": {"emb.weight": weight, "head.weight": weight, "head.bias": torch.ones(2)}, "flat.a": view, "flat.b": view,
             "deep": {"x": {"y": view}}, "epoch": 3}
    torch.save(state, out / "source.pt")
    ckpt("convert", out / "source.pt", out / "way", "--to", "ckpt" if way == "universal" else "dcp")
    ckpt("convert", out / "way", out / "back.pt")
    back = load(out / "back.pt")
    assert set(back) == set(state) and set(back["model"]) == set(state["model"])
    for one, other in ((back["model"]["head.weight"], weight), (back["flat.b"], view), (back["deep"]["x"]["y"], view)):
        assert torch.equal(one, other)


def test_shards_have_an_index(ckpt, out):
    import json
    target = out / "hf"
    ckpt("convert", str(GOLDEN / "torch/pt_trainer/ckpt/pytorch_model.bin"), str(target), "--to", "torch", "--only",
         "weights", "--shard-size", "8000")
    index = json.loads((target / "pytorch_model.bin.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 1 and files[0].startswith("pytorch_model-00001-of-")
    for file in files:
        assert set(load(target / file)) == {name for name, place in index["weight_map"].items() if place == file}
