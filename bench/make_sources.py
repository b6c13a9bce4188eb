"""Writes the benchmark's sources with the real frameworks, on the CPU: DeepSpeed ZeRO-2, ZeRO-3 and a universal folder made of
ZeRO-2, PyTorch DCP cut by rows and by rows and columns, and one torch.save file.

    python bench/make_sources.py OUT --case zero2|zero3|universal|dcp|dcp-2d|torch --gib 4 --ranks 4

Values are random (incompressible). One optimizer step makes DeepSpeed allocate its state; then the fp32 masters and
moments are overwritten with random values so that no page is zero. Needs: torch, deepspeed.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

BYTES_PER_PARAMETER = 14  # bf16 weight, fp32 master, two fp32 moments


def widths(gib):
    """Square layers of 4096 until the state is `gib` GiB, and some small tensors between them."""
    parameters = int(gib * 2**30 / BYTES_PER_PARAMETER)
    return 4096, max(1, parameters // (4096 * 4096))


def model(gib):
    import torch

    width, layers = widths(gib)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(width)
            self.linear = torch.nn.Linear(width, width)

        def forward(self, x):
            return self.linear(self.norm(x))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(Layer() for _ in range(layers))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x.float().pow(2).mean()

    return Model, width


def deepspeed_rank(args):
    import contextlib
    import deepspeed
    import deepspeed.ops
    import torch

    torch.set_num_threads(1)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    stage = 3 if args.case == "zero3" else 2
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}, "bf16": {"enabled": True},
              "zero_allow_untested_optimizer": True,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}}
    deepspeed.init_distributed(dist_backend="gloo")
    build, width = model(args.gib)
    with deepspeed.zero.Init(config_dict_or_path=config) if stage == 3 else contextlib.nullcontext():
        net = build()
    engine, *_ = deepspeed.initialize(model=net, config=config, model_parameters=net.parameters())
    loss = engine(torch.randn(1, width, dtype=torch.bfloat16))
    engine.backward(loss)
    engine.step()
    generator = torch.Generator().manual_seed(engine.global_rank)
    for state in engine.optimizer.optimizer.state.values():
        for value in state.values():
            if torch.is_tensor(value) and value.numel() > 1:
                value.normal_(generator=generator)
    engine.save_checkpoint(args.out, tag="global_step1")


def dcp_rank(args):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    both = args.case == "dcp-2d"
    mesh = init_device_mesh("cpu", (2, ranks // 2) if both else (ranks,))
    placements = [Shard(0), Shard(1)] if both else [Shard(0)]
    generator = torch.Generator().manual_seed(dist.get_rank())
    width, layers = widths(args.gib)

    def tensor(rows, columns, dtype):
        shape = (rows // 2, columns // (ranks // 2)) if both else (rows // ranks, columns)
        local = torch.empty(*shape, dtype=torch.float32).normal_(generator=generator)
        return DTensor.from_local(local.to(dtype), mesh, placements, run_check=False)

    state = {"model": {}, "optimizer": {"state": {}}}
    for i in range(layers):
        name = f"layers.{i}.weight"
        state["model"][name] = tensor(width, width, torch.bfloat16)
        state["optimizer"]["state"][name] = {slot: tensor(width, width, torch.float32)
                                             for slot in ("master", "exp_avg", "exp_avg_sq")}
    dcp.save(state, checkpoint_id=args.out)
    dist.destroy_process_group()


def torch_file(args):
    import torch

    width, layers = widths(args.gib)
    state = {"model": {}, "optimizer": {}}
    for i in range(layers):
        name = f"layers.{i}.weight"
        state["model"][name] = torch.empty(width, width).normal_().bfloat16()
        state["optimizer"][name] = {slot: torch.empty(width, width).normal_() for slot in ("master", "exp_avg", "exp_avg_sq")}
    torch.save(state, args.out)


def make_universal(args, zero2):
    """DeepSpeed's own conversion of a ZeRO-2 checkpoint to a folder with a file for each parameter and state."""
    command = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", f"{zero2}/global_step1",
               "--output_folder", f"{args.out}/global_step1", "--inject_missing_state", "--num_extract_workers", "1",
               "--num_merge_workers", "1"]
    code = subprocess.run(command, env={**os.environ, "DS_ACCELERATOR": "cpu"}).returncode
    shutil.rmtree(zero2)
    return code


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--case", choices=["zero2", "zero3", "universal", "dcp", "dcp-2d", "torch"], required=True)
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--ranks", type=int, default=4)
    args = parser.parse_args()
    if "RANK" in os.environ:
        return dcp_rank(args) if args.case.startswith("dcp") else deepspeed_rank(args)
    if args.case == "torch":
        return torch_file(args)
    words = list(sys.argv)
    if args.case == "universal":
        words[words.index(args.out)] = args.out + ".zero2"
    children = []
    for rank in range(args.ranks):
        env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(args.ranks),
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29591", "DS_BUILD_OPS": "0", "DS_ACCELERATOR": "cpu"}
        children.append(subprocess.Popen([sys.executable, *words], env=env))
    codes = [child.wait() for child in children]
    if args.case == "universal":
        codes.append(make_universal(args, args.out + ".zero2"))
    print(json.dumps({"case": args.case, "gib": args.gib, "ranks": args.ranks, "exit": codes}))
    sys.exit(max(abs(code) for code in codes))


main()
