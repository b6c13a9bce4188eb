"""Every genuine checkpoint equals its truth, bit for bit, through every target."""
import json

import pytest

from conftest import GOLDEN, golden_cases
from truth import differences, from_hdf5, from_safetensors, same_names

pytestmark = pytest.mark.parametrize("name", golden_cases())


def check(name, ckpt, tensors):
    case = GOLDEN / name
    # Tied names are stored once: the other name is an alias of the tensor that inspect prints.
    told = json.loads(ckpt("inspect", case / "ckpt", "--json").stdout)["data"]["aliases"]
    tensors = tensors | {a["name"]: tensors[a["target"]] for a in told if a["name"] not in tensors}
    lines, compared = differences(case, tensors)
    assert not lines, f"{len(lines)} of {compared}: " + "\n".join(lines[:10])
    assert compared > 0
    if name.startswith("safetensors/"):  # the files' own names, which differ from the truth's for Mixtral
        assert same_names(from_safetensors(case / "ckpt"), tensors) == []


def test_safetensors_file_holds_the_truth(name, ckpt, out):
    ckpt("convert", GOLDEN / name / "ckpt", out / "all.safetensors")
    check(name, ckpt, from_safetensors(out / "all.safetensors"))


def test_safetensors_directory_holds_the_truth(name, ckpt, out):
    ckpt("convert", GOLDEN / name / "ckpt", out / "hf", "--to", "safetensors", "--shard-size", "40KB")
    check(name, ckpt, from_safetensors(out / "hf"))
    for index in (out / "hf").glob("*.index.json"):
        weight_map = json.loads(index.read_text())["weight_map"]
        held = {n: f.name for f in (out / "hf").glob("*.safetensors") for n in from_safetensors(f)}
        assert weight_map == {n: held[n] for n in weight_map}
        assert set(weight_map.values()) == {f.name for f in (out / "hf").glob(index.name.split(".")[0] + "-*.safetensors")}


def test_hdf5_holds_the_truth(name, ckpt, out):
    ckpt("convert", GOLDEN / name / "ckpt", out / "all.h5")
    check(name, ckpt, from_hdf5(out / "all.h5"))


def test_universal_holds_the_truth_and_gives_it_back(name, ckpt, out):
    source = GOLDEN / name / "ckpt"
    ckpt("convert", source, out / "universal")
    check(name, ckpt, from_safetensors(out / "universal" / "shards") if (out / "universal" / "shards").exists() else {})
    ckpt("verify", out / "universal")
    ckpt("verify", out / "universal", "--against", source)
    ckpt("convert", out / "universal", out / "back.safetensors")
    back = from_safetensors(out / "back.safetensors")
    check(name, ckpt, back)
    ckpt("convert", source, out / "direct.safetensors")
    direct = from_safetensors(out / "direct.safetensors")
    assert set(back) == set(direct) and same_names(direct, back) == []


def test_inspect_tells_step_and_world(name, ckpt):
    about = json.loads((GOLDEN / name / "about.json").read_text())
    told = json.loads(ckpt("inspect", GOLDEN / name / "ckpt", "--json").stdout)
    assert told["ok"] is True and told["exit_code"] == 0
    data = told["data"]
    if about["framework"] == "deepspeed":
        assert data["meta"]["step"] == about["step"]
        assert data["meta"]["world_size"] == about["world_size"]
        assert data["meta"]["framework_version"] == about["versions"]["deepspeed"]
    assert data["complete"] is True
