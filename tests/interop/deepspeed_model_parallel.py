"""One rank of small model-parallel training runs on the CPU, as deepspeed_resume.py runs data-parallel ones:

    RANK=0 WORLD_SIZE=4 ... python deepspeed_model_parallel.py OUT '[{"name": "a", "kind": "tensor", "stage": 1, "dtype": "fp32", "warm": 2, "save": "DIR"}]'

kind is "tensor" (two tensor-parallel ranks), "pipeline" (two stages), "both" or "experts" (the case's "ep" expert-parallel ranks).
The files that rank 0 writes have one key for each model-parallel rank ("0/param/up.weight"), and experts by their global numbers.
"""
import contextlib
import json
import sys

from deepspeed_resume import DeepSpeedRun, groups_of, main

TENSOR_GROUP = []  # of the model that is being trained
WIDTH, TOKENS, TENSOR_RANKS, STAGES = 6, 11, 2, 2


def layers():
    import torch
    import torch.distributed as dist
    from torch import nn

    class Enter(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, gradient):
            gradient = gradient.clone()
            dist.all_reduce(gradient, group=TENSOR_GROUP[0])
            return gradient

    class Leave(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x = x.clone()
            dist.all_reduce(x, group=TENSOR_GROUP[0])
            return x

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    class Block(nn.Module):
        """A layer of which each tensor-parallel rank has some columns and rows, and everything else."""

        def __init__(self, ranks):
            super().__init__()
            self.ranks = ranks
            self.up = nn.Linear(WIDTH, 10 // ranks)
            self.down = nn.Linear(10 // ranks, WIDTH, bias=False)
            self.norm = nn.LayerNorm(WIDTH)
            self.register_buffer("scale", torch.tensor([0.5, 1.5, 0.25, 2.0, 1.0, 0.75]))

        def forward(self, x):
            y = self.norm(x)
            y = self.down(torch.relu(self.up(Enter.apply(y) if self.ranks > 1 else y)))
            return x + (Leave.apply(y) if self.ranks > 1 else y) * self.scale.to(y.dtype)

    return Block


def data(step):
    import torch
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randint(0, TOKENS, (2, 5), generator=generator)


def loss_of(logits, tokens):
    from torch.nn.functional import cross_entropy
    return cross_entropy(logits.float().flatten(0, 1), tokens.roll(1, 1).flatten())


RULES = {"universal_checkpoint_version": 0.2,
         "tp_replicated_parameter_patterns": [r".*norm\.weight", r".*norm\.bias", r".*emb.*weight"],
         "parameter_with_row_parallelism_patterns": [r".*down\.weight"]}


def different_slices(model, rank):
    """Tensor-parallel ranks begin with the same random numbers."""
    import torch
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".up." in name or ".down." in name:
                parameter.mul_(1 + rank)


def dense(tensor_ranks, experts=None):
    import torch
    from torch import nn
    Block = layers()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(TOKENS, WIDTH)
            self.block = Block(tensor_ranks)
            if experts:
                from deepspeed.moe.layer import MoE
                expert = nn.Sequential(nn.Linear(WIDTH, 3), nn.ReLU(), nn.Linear(3, WIDTH))
                self.moe = MoE(WIDTH, expert, num_experts=experts["count"], ep_size=experts["ep"], k=1, capacity_factor=4.0, min_capacity=8,
                               use_rts=False)
            self.probe = nn.Linear(WIDTH, WIDTH, bias=False)
            self.head = nn.Linear(WIDTH, TOKENS, bias=False)
            self.head.weight = self.emb.weight
            self.probe.weight.requires_grad_(False)

        def forward(self, tokens):
            x = self.block(self.emb(tokens))
            extra = 0.0
            if experts:
                x, extra, _ = self.moe(x)
            x = x + self.probe(x)
            return loss_of(self.head(x), tokens) + 0.01 * extra

    return Model()


class ModelParallelRun(DeepSpeedRun):
    def prepare(self, case, config):
        import deepspeed
        import torch
        import torch.distributed as dist
        from deepspeed.runtime.pipe.topology import PipelineParallelGrid, PipeModelDataParallelTopology
        self.kind = case["kind"]
        stages = STAGES if self.kind in ("pipeline", "both") else 1
        ranks = TENSOR_RANKS if self.kind in ("tensor", "both") else 1
        topology = PipeModelDataParallelTopology(num_pp=stages, num_mp=ranks, num_dp=dist.get_world_size() // (stages * ranks))
        place = topology.get_coord(dist.get_rank())
        self.model_rank, self.is_first = place.pipe * ranks + place.model, place.data == 0
        if stages > 1:
            from torch import nn
            from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
            Block = layers()
            specs = [TiedLayerSpec("emb", nn.Embedding, TOKENS, WIDTH), LayerSpec(Block, ranks), lambda x: x * 1.5,
                     LayerSpec(Block, ranks), TiedLayerSpec("emb", nn.Embedding, TOKENS, WIDTH, forward_fn=lambda m, x: x @ m.weight.t())]
            model = PipelineModule(layers=specs, topology=topology, loss_fn=loss_of, partition_method="uniform", base_seed=case.get("seed", 1))
            TENSOR_GROUP[:] = [model._grid.get_slice_parallel_group()]
        else:
            grid = PipelineParallelGrid(topology) if ranks > 1 else None
            TENSOR_GROUP[:] = [grid and grid.get_slice_parallel_group()]
            experts = {"count": case.get("experts", 4), "ep": case["ep"]} if self.kind == "experts" else None
            group = grid and grid.get_data_parallel_group()
            with (deepspeed.zero.Init(config_dict_or_path=config, data_parallel_group=group) if self.stage == 3 else contextlib.nullcontext()):
                model = dense(ranks, experts)
        if ranks > 1:
            if self.stage != 3:
                different_slices(model, place.model)
            model.universal_checkpoint_info = RULES
        # Without ZeRO files have no names: one group, so that the order of the module tells them.
        groups = groups_of(model) if self.kind != "experts" or self.stage > 0 else [{"params": [p for p in model.parameters() if p.requires_grad]}]
        if self.kind == "experts":
            from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer as split
            groups = split([{**g, "name": str(i)} for i, g in enumerate(groups)])
        extra = {"mpu": grid} if stages == 1 and ranks > 1 else {}
        return deepspeed.initialize(model=model, config=config, model_parameters=groups, **extra)[0]

    def train(self, step):
        if self.kind not in ("pipeline", "both"):
            loss = self.engine(data(step))
            self.engine.backward(loss)
            self.engine.step()
            return loss.item()
        tokens = data(step)
        return self.engine.train_batch(data_iter=iter([(tokens, tokens)])).item()

    def global_name(self, name):
        if "deepspeed_experts." not in name:
            return name
        from deepspeed.utils import groups
        layer, rest = name.split("deepspeed_experts.")
        local, rest = rest.split(".", 1)
        moe = self.engine.module.get_submodule(layer.split(".deepspeed_moe")[0])
        number = groups._get_expert_parallel_rank(moe.expert_group_name) * moe.num_local_experts + int(local)
        return f"{layer}deepspeed_experts.{number}.{rest}"

    def buffers(self):
        return {"buffer/" + name: buffer.detach().clone() for name, buffer in self.engine.module.named_buffers()}

    def held(self):
        """Of all ranks, with the number of the model-parallel rank before the keys."""
        import torch
        import torch.distributed as dist
        mine = {}
        for key, tensor in super().held().items():
            role, name = key.split("/", 1)
            mine[f"{self.model_rank}/{role}/{self.global_name(name)}"] = tensor
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, mine)
        out = {}
        for part in everyone:
            for key, tensor in part.items():
                assert key not in out or torch.equal(out[key], tensor), key
                out[key] = tensor
        return out


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), ModelParallelRun)
