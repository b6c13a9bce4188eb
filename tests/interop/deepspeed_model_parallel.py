"""One rank of small model-parallel training runs on the CPU, as deepspeed_resume.py runs data-parallel ones:

    RANK=0 WORLD_SIZE=4 ... python deepspeed_model_parallel.py OUT '[{"name": "a", "kind": "tensor", "stage": 1, "dtype": "fp32", "warm": 2, "save": "DIR"}]'

kind is "tensor" (two tensor-parallel ranks), "pipeline" (two stages), "both" or "experts" (the case's "ep" expert-parallel ranks), or the first
three with "+experts": each tensor-parallel rank has its slice of every expert with "slices", else experts of its own.
The files that rank 0 writes have one key for each model-parallel rank ("0/param/up.weight"), and experts by their global numbers; with "truth" it
also writes the tensors joined, under the keys of tests/golden/README.md.
"""
import contextlib
import json
import sys

from deepspeed_resume import DeepSpeedRun, groups_of, main

TENSOR_GROUP = []  # of the model that is being trained
WIDTH, TOKENS, TENSOR_RANKS, STAGES = 6, 11, 2, 2
ONE_DIMENSION = {"up.weight": 0, "up.bias": 0, "down.weight": 1}  # along which tensor-parallel ranks cut it


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

        def __init__(self, ranks, bare=False):
            super().__init__()
            self.ranks = ranks
            self.up = nn.Linear(WIDTH, 10 // ranks)
            self.down = nn.Linear(10 // ranks, WIDTH, bias=False)
            self.norm = nn.LayerNorm(WIDTH)
            self.register_buffer("scale", torch.tensor([0.5, 1.5, 0.25, 2.0, 1.0, 0.75]), persistent=not bare)

        def forward(self, x):
            y = self.norm(x)
            y = self.down(torch.relu(self.up(Enter.apply(y) if self.ranks > 1 else y)))
            return x + (Leave.apply(y) if self.ranks > 1 else y) * self.scale.to(y.dtype)

    class Expert(nn.Module):
        """An expert of which each tensor-parallel rank has some columns and rows."""

        def __init__(self, ranks):
            super().__init__()
            self.up = nn.Linear(WIDTH, 4 // ranks)
            self.down = nn.Linear(4 // ranks, WIDTH, bias=False)

        def forward(self, x):
            return Leave.apply(self.down(torch.relu(self.up(Enter.apply(x)))))

    class Mixture(nn.Module):
        """A mixture of experts as a layer of a pipeline."""

        def __init__(self, ranks, experts):
            super().__init__()
            self.moe = mixture(experts, Expert(ranks) if experts["slices"] else None)

        def forward(self, x):
            return self.moe(x)[0]

    return Block, Mixture


def mixture(experts, expert=None):
    from torch import nn
    from deepspeed.moe.layer import MoE
    expert = expert or nn.Sequential(nn.Linear(WIDTH, 3), nn.ReLU(), nn.Linear(3, WIDTH))
    return MoE(WIDTH, expert, num_experts=experts["count"], ep_size=experts["ep"], k=1, capacity_factor=4.0, min_capacity=8, use_rts=False,
               enable_expert_tensor_parallelism=experts["slices"])


def data(step):
    import torch
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randint(0, TOKENS, (2, 5), generator=generator)


def loss_of(logits, tokens):
    from torch.nn.functional import cross_entropy
    return cross_entropy(logits.float().flatten(0, 1), tokens.roll(1, 1).flatten())


def rules(has_experts, has_head):
    """ds_to_universal.py refuses patterns that match nothing."""
    more = ([r".*gate\.wg\.weight"] if has_experts else []) + (["head"] if has_head else [])
    return {"universal_checkpoint_version": 0.2,
            "tp_replicated_parameter_patterns": [r".*norm\.weight", r".*norm\.bias", r".*emb.*weight", *more],
            "parameter_with_row_parallelism_patterns": [r".*down\.weight"]}


def different_slices(model, rank):
    """Tensor-parallel ranks begin with the same random numbers."""
    import torch
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".up." in name or ".down." in name:
                parameter.mul_(1 + rank)


def different_experts(model):
    """So do expert-parallel ranks; those with the same experts get the first one's."""
    import torch
    import torch.distributed as dist
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "deepspeed_experts." in name:
                parameter.mul_(1 + dist.get_rank() / 8)


def dense(tensor_ranks, experts=None, bare=False):
    import torch
    from torch import nn
    Block, Mixture = layers()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(TOKENS, WIDTH)
            self.block = Block(tensor_ranks, bare)
            if experts:
                self.moe = Mixture(tensor_ranks, experts).moe
            if not bare:
                self.probe = nn.Linear(WIDTH, WIDTH, bias=False)
                self.probe.weight.requires_grad_(False)
            self.head = nn.Linear(WIDTH, TOKENS, bias=False)
            if not bare:
                self.head.weight = self.emb.weight

        def forward(self, tokens):
            x = self.block(self.emb(tokens))
            extra = 0.0
            if experts:
                x, extra, _ = self.moe(x)
            x = x if bare else x + self.probe(x)
            return loss_of(self.head(x), tokens) + 0.01 * extra

    return Model()


def forget_groups():
    """DeepSpeed keeps the groups of the last run in this process."""
    from deepspeed.utils import groups
    groups.mpu, groups.expert_tensor_parallel_world_size = None, 1
    for kept in (groups._EXPERT_PARALLEL_GROUP, groups._EXPERT_PARALLEL_GROUP_RANKS, groups._EXPERT_DATA_PARALLEL_GROUP,
                 groups._EXPERT_DATA_PARALLEL_GROUP_RANKS):
        kept.clear()


def gather_flat():
    """DeepSpeed gathers tokens into a flat tensor, which gloo does for flat tensors only."""
    from deepspeed import comm
    gather = comm.all_gather_into_tensor
    if gather.__name__ != "flat":
        def flat(output, tensor, *options, **more):
            return gather(output, tensor.flatten(), *options, **more)
        comm.all_gather_into_tensor = flat


def joined(held, tensor_ranks):
    """The tensors of all ranks by name, from those of each: {"3/param/up.weight": ...}."""
    import torch
    slices = {}
    for key, tensor in held.items():
        rank, key = key.split("/", 1)
        slices.setdefault(key, {}).setdefault(int(rank) // tensor_ranks, {})[int(rank) % tensor_ranks] = tensor
    out = {}
    for key, stages in slices.items():
        dimension = next((d for end, d in ONE_DIMENSION.items() if key.endswith(end)), None)
        for ranks in stages.values():
            parts = [ranks[t] for t in sorted(ranks)]
            if dimension is None:
                assert all(torch.equal(part, parts[0]) for part in parts), key
            whole = parts[0] if dimension is None else torch.cat(parts, dimension)
            assert key not in out or torch.equal(out[key], whole), key
            out[key] = whole
    return out


class ModelParallelRun(DeepSpeedRun):
    def prepare(self, case, config):
        import deepspeed
        import torch
        import torch.distributed as dist
        from deepspeed.runtime.pipe.topology import PipelineParallelGrid, PipeModelDataParallelTopology
        forget_groups()
        gather_flat()
        self.kind, _, has_experts = case["kind"].partition("+")
        has_experts = has_experts or self.kind == "experts"
        bare = case.get("bare", False)
        experts = {"count": case.get("experts", 4), "ep": case["ep"], "slices": case.get("slices", False)} if has_experts else None
        stages = STAGES if self.kind in ("pipeline", "both") else 1
        self.tensor_ranks = ranks = TENSOR_RANKS if self.kind in ("tensor", "both") else 1
        topology = PipeModelDataParallelTopology(num_pp=stages, num_mp=ranks, num_dp=dist.get_world_size() // (stages * ranks))
        place = topology.get_coord(dist.get_rank())
        self.truth = case.get("truth")
        self.model_rank, self.is_first = place.pipe * ranks + place.model, place.data == 0
        if stages > 1:
            from torch import nn
            from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
            Block, Mixture = layers()
            middle = [LayerSpec(Block, ranks, bare), LayerSpec(Mixture, ranks, experts) if experts else (lambda x: x * 1.5)]
            specs = [TiedLayerSpec("emb", nn.Embedding, TOKENS, WIDTH), *middle, *middle[:1 + bool(experts)],
                     TiedLayerSpec("emb", nn.Embedding, TOKENS, WIDTH, forward_fn=lambda m, x: x @ m.weight.t())]
            model = PipelineModule(layers=specs, topology=topology, loss_fn=loss_of, partition_method="uniform", base_seed=case.get("seed", 1))
            TENSOR_GROUP[:] = [model._grid.get_slice_parallel_group()]
        else:
            grid = PipelineParallelGrid(topology) if ranks > 1 else None
            TENSOR_GROUP[:] = [grid and grid.get_slice_parallel_group()]
            group = grid and grid.get_data_parallel_group()
            with (deepspeed.zero.Init(config_dict_or_path=config, data_parallel_group=group) if self.stage == 3 else contextlib.nullcontext()):
                model = dense(ranks, experts, bare)
        if experts:
            different_experts(model)
        if ranks > 1:
            if self.stage != 3:
                different_slices(model, place.model)
            model.universal_checkpoint_info = rules(bool(experts), bare and stages == 1)
        # Without ZeRO files have no names: one group, so that the order of the module tells them.
        one_group = case.get("one_group", bool(experts) and self.stage == 0)
        groups = [{"params": [p for p in model.parameters() if p.requires_grad]}] if one_group else groups_of(model)
        if experts:
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
        kept = self.engine.module.state_dict()
        return {"buffer/" + name: buffer.detach().clone() for name, buffer in self.engine.module.named_buffers() if name in kept}

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

    def save(self, directory, step):
        super().save(directory, step)
        if self.truth:
            from safetensors.torch import save_file
            import torch.distributed as dist
            whole = joined(self.held(), self.tensor_ranks)
            if dist.get_rank() == 0:
                save_file({key: tensor.contiguous() for key, tensor in whole.items()}, self.truth)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), ModelParallelRun)
