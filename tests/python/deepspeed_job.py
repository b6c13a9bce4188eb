"""A rank of a DeepSpeed job on the CPU that saves through ckpt.integrations.deepspeed: deepspeed_job.py WHAT DIRECTORY RANK WORLD.
test_deepspeed_engine.py starts it.

save   for each ZeRO stage: trains, saves by ours (ours0..3/) and by DeepSpeed (stock0..3/), trains on; losses.json
load   loads each into a new trainer, what we saved by DeepSpeed's engine and the reverse, and trains on with the same losses
"""
import contextlib
import json
import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", RANK=sys.argv[3], LOCAL_RANK=sys.argv[3], WORLD_SIZE=sys.argv[4])

import conftest  # noqa: F401: where the package is
import deepspeed
import deepspeed.ops
import rank_of_job
import torch
import torch.distributed as dist

import ckpt
from ckpt.integrations.deepspeed import use_ckpt

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # needs a compiler


def engine_of(stage):
    config = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": stage > 0}, "zero_optimization": {"stage": stage},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
              "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}}
    torch.manual_seed(1)
    with (deepspeed.zero.Init(config_dict_or_path=config) if stage == 3 else contextlib.nullcontext()):
        model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    return deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())[0]


def train(engine, stage, steps):
    losses = []
    for step in steps:
        batch = torch.randn(2, 6, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
        loss = engine(batch.bfloat16() if stage else batch).float().square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def save(mesh, directory):
    losses = {}
    for stage in range(4):
        engine = engine_of(stage)
        train(engine, stage, range(3))
        engine.save_checkpoint(str(directory / f"stock{stage}"), client_state={"note": "kept"})
        use_ckpt(engine)
        engine.save_checkpoint(str(directory / f"ours{stage}"), client_state={"note": "kept"})
        losses[stage] = train(engine, stage, range(3, 6))
        engine.save_checkpoint(str(directory / f"ours{stage}"), tag="later")
        engine.save_checkpoint(str(directory / f"ours{stage}"), tag="later")  # replaces its files
    (directory / f"losses{dist.get_rank()}.json").write_text(json.dumps(losses))
    engine.checkpoint_engine = object()
    try:
        use_ckpt(engine)
    except ckpt.Unsupported as reason:
        assert "saves with object" in str(reason)
    else:
        raise AssertionError("another writer was replaced")


def load(mesh, directory):
    expected = json.loads((directory / f"losses{dist.get_rank()}.json").read_text())
    for stage in range(4):
        for path, is_ours in ((f"ours{stage}", False), (f"stock{stage}", True), (f"ours{stage}", True)):
            engine = engine_of(stage)
            if is_ours:
                use_ckpt(engine)
            loaded, client = engine.load_checkpoint(str(directory / path), tag="global_step3")
            assert loaded and client["note"] == "kept", path
            assert train(engine, stage, range(3, 6)) == expected[str(stage)], path


if __name__ == "__main__":
    rank_of_job.main({"save": save, "load": load})
