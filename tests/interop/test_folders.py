"""Folders that transformers loads, and the trainer's state in them, through ckpt."""
import json
import os
import subprocess
import struct
import sys

import pytest

from conftest import GOLDEN
from truth import from_safetensors

FOLDERS = GOLDEN / "folders"
IDS = [[1, 5, 3, 2, 9, 14]]


def logits(directory):
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(directory)
    with torch.no_grad():
        return model.eval()(torch.tensor(IDS)).logits


def chat(directory):
    import transformers
    return transformers.AutoTokenizer.from_pretrained(directory).apply_chat_template([{"content": "a b"}], tokenize=False)


def by_way(ckpt, source, out, way, *words):
    """The folder that a source is converted to, directly or through the universal format."""
    if way == "universal":
        ckpt("convert", source, out / "u")
        source = out / "u"
    ckpt("convert", source, out / "hf", "--to", "safetensors", "--only", "weights", *words)
    return out / "hf"


@pytest.mark.parametrize("way", ["direct", "universal"])
@pytest.mark.parametrize("case", ["hf_tokenizer", "hf_trainer"])
def test_a_folder_loads_with_the_same_logits_and_tokenizer(case, way, ckpt, out):
    source = FOLDERS / case / "ckpt"
    made = by_way(ckpt, source, out, way)
    assert (logits(made) == logits(source)).all()
    assert chat(made) == chat(source) == "a b"


def test_a_cast_is_loaded_in_its_dtype(ckpt, out):
    import torch
    import transformers
    made = by_way(ckpt, FOLDERS / "hf_tokenizer" / "ckpt", out, "direct", "--dtype", "bf16")
    model = transformers.AutoModelForCausalLM.from_pretrained(made)
    assert model.dtype == torch.bfloat16
    assert json.loads((made / "config.json").read_text())["dtype"] == "bfloat16"


@pytest.mark.parametrize("case", ["hf_trainer", "accelerate", "accelerate_bin"])
def test_the_universal_format_keeps_the_state_of_the_trainer(case, ckpt, out):
    import torch
    source = FOLDERS / case / "ckpt"
    ckpt("convert", source, out / "u")
    held = from_safetensors(out / "u")
    objects = {o["name"]: o["value"] for o in json.loads((out / "u/blobs/objects.json").read_text())["objects"]}
    file = next(f for f in ("optimizer.pt", "optimizer.bin") if (source / f).exists())
    state = torch.load(source / file, weights_only=False)
    for index, slots in state["state"].items():
        for slot, value in slots.items():
            assert held[f"optimizer.state.{index}.{slot}"][2] == value.numpy().tobytes()
    for number, group in enumerate(state["param_groups"]):
        assert objects[f"optimizer.param_groups.{number}.lr"] == {"float": struct.pack(">d", group["lr"]).hex()}
    file = next(f for f in ("scheduler.pt", "scheduler.bin") if (source / f).exists())
    assert objects["scheduler.last_epoch"] == torch.load(source / file, weights_only=False)["last_epoch"]
    if case == "hf_trainer":
        cpu = torch.load(source / "rng_state.pth", weights_only=False)["cpu"]
        assert held["rng_state.cpu"][2] == cpu.numpy().tobytes()
        ckpt("convert", out / "u", out / "hf", "--to", "safetensors")
        assert (out / "hf/trainer_state.json").read_bytes() == (source / "trainer_state.json").read_bytes()


DEEPSPEED = """
import sys, torch, deepspeed, deepspeed.ops, transformers
source, out = sys.argv[1:]
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled, which takes minutes
deepspeed.init_distributed("gloo")
model = transformers.AutoModelForCausalLM.from_pretrained(source)
engine, *_ = deepspeed.initialize(model=model, config={
    "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True,
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "torch_adam": True}}})
ids = torch.tensor([[1, 5, 3, 2]])
engine.backward(engine(input_ids=ids, labels=ids).loss)
engine.step()
engine.save_checkpoint(out + "/run")
engine.module.save_pretrained(out + "/truth")
"""


def test_deepspeed_becomes_a_folder_with_the_assets_of_its_model(ckpt, out, tmp_path):
    base = FOLDERS / "hf_tokenizer" / "ckpt"
    (tmp_path / "save.py").write_text(DEEPSPEED)
    port = str(20000 + os.getpid() % 20000)
    run = subprocess.run([sys.executable, tmp_path / "save.py", base, out], capture_output=True, text=True, timeout=300,
                         env={**os.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                              "MASTER_PORT": port, "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stderr[-4000:]
    made = by_way(ckpt, out / "run", out, "direct", "--assets", base)
    assert (logits(made) == logits(out / "truth")).all()
    assert chat(made) == "a b"


def test_peft_loads_its_adapter(ckpt, out):
    source = FOLDERS / "peft_lora" / "ckpt"
    made = by_way(ckpt, source, out, "universal")
    names = {p.name for p in made.iterdir()}
    assert names == {"README.md", "adapter_config.json", "adapter_model.safetensors"}
    peft = pytest.importorskip("peft")
    import transformers
    base = transformers.AutoModelForCausalLM.from_pretrained(FOLDERS / "hf_tokenizer" / "ckpt")
    model = peft.PeftModel.from_pretrained(base, made)
    held = from_safetensors(source)
    for name, tensor in peft.get_peft_model_state_dict(model).items():
        assert held[name][2] == tensor.numpy().tobytes()
