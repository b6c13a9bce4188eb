"""One rank of a small DeepSpeed run on the CPU: trains, saves, and writes what DeepSpeed says that it held.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=... python deepspeed_save.py OUT '{"stage": 2, "dtype": "bf16", "experts": 4}'

OUT/ckpt is the save directory. OUT/truth.safetensors is written by rank 0, under the keys of tests/golden/README.md.
"""
import contextlib
import json
import os
import sys
import time


def build(case):
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp = nn.Linear(5, 8)
            if case.get("experts"):
                from deepspeed.moe.layer import MoE
                expert = nn.Sequential(nn.Linear(8, 3), nn.ReLU(), nn.Linear(3, 8))
                self.moe = MoE(8, expert, num_experts=case["experts"], ep_size=case.get("expert_ranks", 2), k=1, capacity_factor=4.0,
                               min_capacity=8)
            self.out = nn.Linear(8, 7)

        def forward(self, x):
            x = self.inp(x)
            extra = 0.0
            if case.get("experts"):
                x, extra, _ = self.moe(x)
            return self.out(x).float().pow(2).mean() + 0.01 * extra

    return Model()


COLUMNS, ROWS = ("0", "2"), ("1", "3")  # layers of the pipeline whose weights are cut along dimension 0, 1


def pipeline(case):
    """Two stages of linear layers, each rank with its slices. The ranks of one stage do not talk to each other: what they
    hold matters, not what they compute."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from deepspeed.pipe import LayerSpec, PipelineModule
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
    tensor_ranks = case["tensor_ranks"]

    wide = 8 // tensor_ranks
    specs = [LayerSpec(nn.Linear, 5, wide), LayerSpec(nn.Linear, wide, 6, bias=False), LayerSpec(nn.Linear, 6, wide),
             LayerSpec(nn.Linear, wide, 3, bias=False)]
    topology = PipeModelDataParallelTopology(num_pp=case["stages"], num_mp=tensor_ranks,
                                             num_dp=dist.get_world_size() // (case["stages"] * tensor_ranks))
    torch.manual_seed(7 + topology.get_coord(dist.get_rank()).model)
    model = PipelineModule(layers=specs, topology=topology, partition_method="uniform", loss_fn=nn.MSELoss(), base_seed=7)
    model.universal_checkpoint_info = {"universal_checkpoint_version": 0.2,
                                       "parameter_with_row_parallelism_patterns": [rf"^{n}\.weight$" for n in ROWS]}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.tensor_model_parallel = True
            parameter.add_(topology.get_coord(dist.get_rank()).model)
    return model


def joined(everyone, places):
    """What the ranks hold of each parameter, side by side."""
    import torch
    slices = {}
    for part, tensor_rank in zip(everyone, places):
        for key, tensor in part.items():
            slices.setdefault(key, {})[tensor_rank] = tensor
    return {key: torch.cat([ranks[r] for r in sorted(ranks)], dim=1 if key.split("/")[1].split(".")[0] in ROWS else 0)
            for key, ranks in slices.items()}


def start(case):
    import deepspeed
    import deepspeed.ops
    import torch
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo")
    config = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True,
              "zero_optimization": {"stage": case["stage"], **case.get("zero", {})}}
    if case["dtype"] != "fp32":
        config[case["dtype"]] = {"enabled": True}
    torch.manual_seed(case.get("seed", 1))
    if case.get("stages"):
        model = pipeline(case)
        config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
        return deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())[0]
    with (deepspeed.zero.Init(config_dict_or_path=config) if case["stage"] == 3 else contextlib.nullcontext()):
        model = build(case)
    if not case.get("experts"):
        config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
        return deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())[0]
    from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer as split
    groups = split({"params": list(model.parameters()), "name": "dense"})
    return deepspeed.initialize(model=model, config=config, optimizer=torch.optim.AdamW(groups, lr=1e-3))[0]


def global_name(engine, name):
    if "deepspeed_experts." not in name:
        return name
    from deepspeed.utils import groups
    layer, rest = name.split("deepspeed_experts.")
    local, rest = rest.split(".", 1)
    moe = engine.module.get_submodule(layer.split(".deepspeed_moe")[0])
    number = groups._get_expert_parallel_rank(moe.expert_group_name) * moe.num_local_experts + int(local)
    return f"{layer}deepspeed_experts.{number}.{rest}"


def held(engine, case):
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    optimizer = engine.optimizer
    if hasattr(optimizer, "_hp_optimizer_states_linked"):  # linked after the first group's step only: again for all
        optimizer._hp_optimizer_states_linked = False
        optimizer._lazy_init_hp_params_optimizer_state()
    out = {}
    for local, parameter in engine.module.named_parameters():
        name = global_name(engine, local)
        with (deepspeed.zero.GatheredParameters([parameter]) if case["stage"] == 3 else contextlib.nullcontext()):
            out["param/" + name] = parameter.detach().clone()
        shape = out["param/" + name].shape
        out["master/" + name] = safe_get_full_fp32_param(parameter).detach().clone().reshape(shape)
        for slot in ("exp_avg", "exp_avg_sq"):
            out[f"{slot}/{name}"] = safe_get_full_optimizer_state(parameter, slot).detach().clone().reshape(shape)
    return out


def main(out, case):
    import torch
    import torch.distributed as dist
    from safetensors.torch import save_file
    engine = start(case)
    rank = dist.get_rank()
    for step in range(2):
        torch.manual_seed(100 + 10 * step + rank)
        if case.get("stages"):
            engine.train_batch(data_iter=iter([(torch.randn(2, 5), torch.randn(2, 3))] * 4))
            continue
        engine.backward(engine(torch.randn(4, 6, 5).to(next(engine.module.parameters()).dtype)))
        engine.step()
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, held(engine, case))
    engine.save_checkpoint(os.path.join(out, "ckpt"))
    dist.barrier()
    if rank == 0 and case.get("stages"):
        places = [engine.module.topology().get_coord(r).model for r in range(dist.get_world_size())]
        save_file({key: tensor.contiguous() for key, tensor in joined(everyone, places).items()},
                  os.path.join(out, "truth.safetensors"))
    elif rank == 0:
        merged = {}
        for part in everyone:
            for key, tensor in part.items():
                assert key not in merged or torch.equal(merged[key], tensor), key
                merged[key] = tensor
        save_file({key: tensor.contiguous() for key, tensor in merged.items()}, os.path.join(out, "truth.safetensors"))
    dist.barrier()
    time.sleep(0.5)  # a rank that leaves the last barrier early resets the others' sockets
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
