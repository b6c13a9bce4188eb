"""Common libraries open the files that ckpt writes, with the same values."""
import json
import shutil

import numpy
import pytest

from conftest import GOLDEN
from truth import differences, expected, from_safetensors

MODELS = ["llama_sharded", "llama_tied_sharded", "gpt2_tied", "gpt2_single_file", "mixtral_sharded"]


def tensor_bytes(tensor):
    import torch
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def logits(directory, input_ids):
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    with torch.no_grad():
        return model.eval()(input_ids).logits


@pytest.mark.parametrize("by_way_of", ["direct", "universal"])
@pytest.mark.parametrize("model", MODELS)
def test_transformers_computes_the_same_logits(model, by_way_of, ckpt, out):
    import torch
    from safetensors.torch import load_file
    case = GOLDEN / "safetensors" / model
    source = case / "ckpt"
    if by_way_of == "universal":
        ckpt("convert", source, out / "universal")
        source = out / "universal"
    ckpt("convert", source, out / "hf", "--to", "safetensors", "--shard-size", "60KB")
    for name in ("config.json", "generation_config.json"):
        shutil.copy(case / "ckpt" / name, out / "hf" / name)
    truth = load_file(case / "truth.safetensors")
    found = logits(out / "hf", truth["input_ids"])
    assert torch.equal(found, logits(case / "ckpt", truth["input_ids"]))
    torch.testing.assert_close(found, truth["logits"], rtol=1e-4, atol=1e-5)  # another machine may sum in another order


@pytest.mark.parametrize("name", ["deepspeed/zero2_bf16_dp4", "torch/dcp_plain", "torch/dcp_2d_s0_s1",
                                  "safetensors/llama_sharded"])
def test_torch_reads_universal_shards(name, ckpt, out):
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import HuggingFaceStorageReader
    ckpt("convert", GOLDEN / name / "ckpt", out / "universal")
    assert (out / "universal" / "shards" / "weights").is_dir()
    for folder in ("weights", "optim"):
        shards = out / "universal" / "shards" / folder
        if not shards.exists():
            continue
        wanted = from_safetensors(shards)
        reader = HuggingFaceStorageReader(str(shards))
        known = reader.read_metadata().state_dict_metadata
        assert set(known) == set(wanted)
        state = {n: torch.empty(m.size, dtype=m.properties.dtype) for n, m in known.items()}
        dcp.load(state, storage_reader=HuggingFaceStorageReader(str(shards)), no_dist=True)
        for tensor_name, tensor in state.items():
            assert tensor_bytes(tensor) == wanted[tensor_name][2], tensor_name


@pytest.mark.parametrize("name", ["torch/dcp_all_dtypes", "torch/pt_mixed", "deepspeed/zero3_fp32_dp3_tied_tiny"])
def test_safetensors_reads_what_was_written(name, ckpt, out):
    from safetensors import safe_open
    ckpt("convert", GOLDEN / name / "ckpt", out / "all.safetensors")
    ours = from_safetensors(out / "all.safetensors")
    with safe_open(out / "all.safetensors", framework="pt") as file:
        assert file.metadata()["format"] == "pt"
        assert set(file.keys()) == set(ours)
        for tensor_name in file.keys():
            tensor = file.get_tensor(tensor_name)
            assert tensor_bytes(tensor) == ours[tensor_name][2], tensor_name
            if ours[tensor_name][0] != "F4":  # torch counts pairs of them
                assert tuple(tensor.shape) == ours[tensor_name][1], tensor_name


@pytest.mark.parametrize("name", ["zero1_fp16_dp2", "zero2_bf16_dp4", "zero2_fp32_dp3_frozen", "zero3_bf16_dp4",
                                  "zero3_fp32_dp3_tied_tiny"])
def test_weights_equal_what_deepspeed_consolidates(name, ckpt, out):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    source = GOLDEN / "deepspeed" / name / "ckpt"
    theirs = get_fp32_state_dict_from_zero_checkpoint(str(source))
    ckpt("convert", source, out / "weights.safetensors", "--only", "weights")
    ours = from_safetensors(out / "weights.safetensors")
    aliases = json.loads((GOLDEN / "deepspeed" / name / "about.json").read_text())["aliases"]
    compared = 0
    for tensor_name, tensor in theirs.items():
        stored = tensor_name if tensor_name in ours else aliases.get(tensor_name)
        if ours[stored][0] != "F32" and tensor.dtype.is_floating_point:
            continue  # DeepSpeed widens frozen 16-bit weights too; ours keep the dtype they have
        assert tensor_bytes(tensor) == ours[stored][2], tensor_name
        compared += 1
    assert compared >= 6


def test_weights_are_masters_unless_params_are_asked_for(ckpt, out):
    case = GOLDEN / "deepspeed" / "zero2_bf16_dp4"
    ckpt("convert", case / "ckpt", out / "master.safetensors", "--only", "weights")
    ckpt("convert", case / "ckpt", out / "param.safetensors", "--only", "weights", "--weights", "param")
    masters, params = from_safetensors(out / "master.safetensors"), from_safetensors(out / "param.safetensors")
    truth = expected(case)
    aliases = json.loads((case / "about.json").read_text())["aliases"]
    names = {k.split("/", 1)[1] for k in truth if k.startswith("master/")}
    assert names and {masters[n][2] == truth[f"master/{n}"][2] for n in names} == {True}
    assert {t[0] for t in masters.values()} == {"F32"}
    assert differences(case, params, roles=("param",))[0] == []
    assert all(n in params or aliases[n] in params for n in names)


def test_dtype_casts_as_numpy_rounds(ckpt, out):
    """fp32 to fp16, to nearest even: numpy does the same, independently."""
    case = GOLDEN / "deepspeed" / "zero2_fp32_dp3_frozen"
    ckpt("convert", case / "ckpt", out / "half.safetensors", "--dtype", "fp16")
    half = from_safetensors(out / "half.safetensors")
    compared = 0
    for key, (dtype, _, data) in expected(case).items():
        role, name = key.split("/", 1)
        if role == "param" and dtype == "F32":
            wanted = numpy.frombuffer(data, "<f4").astype("<f2").tobytes()
            assert half[name][0] == "F16" and half[name][2] == wanted, name
            compared += 1
        elif role == "exp_avg":  # slots are never cast
            assert half[f"optimizer.state.{name}.exp_avg"][0] == dtype
    assert compared > 0


def test_hdf5_tells_true_dtypes(ckpt, out):
    import h5py
    ckpt("convert", GOLDEN / "torch/pt_dtypes/ckpt", out / "all.h5")
    with h5py.File(out / "all.h5", "r") as file:
        assert len(file.attrs["ckpt_id"]) == 32
        for name, stored, told in (("float32", "<f4", b"F32"), ("float16", "<f2", b"F16"), ("bfloat16", "<u2", b"BF16"),
                                   ("float8_e4m3fn", "u1", b"F8_E4M3"), ("int64", "<i8", b"I64")):
            assert file[name].dtype == numpy.dtype(stored) and file[name].attrs["ckpt_dtype"] == told, name
        assert file["bool"].dtype == numpy.dtype("?")
