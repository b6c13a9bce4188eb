"""One rank of small training runs on the CPU, one after another in one launch: each starts, or loads what was written, says what
it holds, saves, and trains on.

    RANK=0 WORLD_SIZE=2 ... python deepspeed_resume.py OUT '[{"name": "a", "stage": 2, "dtype": "bf16", "warm": 2, "save": "DIR"}]'

Every rank trains on the same data and no gradient is clipped, so that gradients do not depend on how many ranks there are. Rank 0 writes OUT/NAME.held.safetensors
(under the keys of tests/golden/README.md), OUT/NAME.end.safetensors (weights, masters and moments three steps later) and OUT/NAME.json.
"""
import contextlib
import json
import os
import sys
import time

STEPS_ON = 3


def build():
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(11, 6)
            self.fc = nn.Linear(6, 7)
            self.proj = nn.Linear(7, 6)
            self.probe = nn.Linear(6, 6, bias=False)
            self.head = nn.Linear(6, 11, bias=False)
            self.head.weight = self.emb.weight
            self.register_buffer("scale", torch.tensor([[0.5, 1.5, 0.25, 2.0, 1.0, 0.75]]))
            for parameter in self.probe.parameters():
                parameter.requires_grad_(False)

        def forward(self, tokens):
            x = self.emb(tokens)
            x = x + self.proj(torch.relu(self.fc(x))) * self.scale.to(x.dtype) + self.probe(x)
            return nn.functional.cross_entropy(self.head(x).float().flatten(0, 1), tokens.roll(1, 1).flatten())

    return Model()


def groups_of(model):
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    return [{"params": [p for n, p in named if not n.endswith("bias")], "weight_decay": 0.1, "lr": 1e-2},
            {"params": [p for n, p in named if n.endswith("bias")], "weight_decay": 0.0, "lr": 5e-3}]


def batch(step):
    import torch
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randint(0, 11, (2, 5), generator=generator)


class DeepSpeedRun:
    def __init__(self, case):
        import torch
        self.stage, self.dtype = case["stage"], case["dtype"]
        config = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True,
                  "zero_optimization": {"stage": self.stage, **case.get("zero", {})},
                  "gradient_clipping": case.get("clip", 1e6), "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}}}
        if case.get("scheduler", True):
            config["scheduler"] = {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_max_lr": 1e-2}}
        if self.dtype == "bf16":
            config["bf16"] = {"enabled": True}
        if self.dtype == "fp16":
            from deepspeed.accelerator import get_accelerator
            type(get_accelerator()).is_fp16_supported = lambda self: True
            config["fp16"] = {"enabled": True, "initial_scale_power": 8, "loss_scale_window": 2}
        if case.get("universal"):
            config["checkpoint"] = {"load_universal": True}
        torch.manual_seed(case.get("seed", 1))
        self.engine = self.prepare(case, config)
        self.client = None

    def prepare(self, case, config):
        import deepspeed
        with (deepspeed.zero.Init(config_dict_or_path=config) if self.stage == 3 else contextlib.nullcontext()):
            model = build()
        return deepspeed.initialize(model=model, config=config, model_parameters=groups_of(model))[0]

    def load(self, directory, **options):
        path, self.client = self.engine.load_checkpoint(directory, **options)
        assert path, directory
        return self.engine.global_steps

    def follow(self, code):
        exec(code, {"engine": self.engine})
        return self.engine.global_steps

    def train(self, step):
        loss = self.engine(batch(step))
        self.engine.backward(loss)
        self.engine.step()
        return loss.item()

    def save(self, directory, step):
        self.engine.save_checkpoint(directory, client_state={"note": "kept", "numbers": {"seen": 12 + step}})

    def masters_and_state(self):
        """By name, where the optimizer has one tensor a parameter."""
        optimizer = self.engine.optimizer
        names = {p: n for n, p in self.engine.module.named_parameters()}
        if not hasattr(optimizer, "fp32_groups"):
            for parameter, name in names.items():
                if parameter.requires_grad:
                    yield name, parameter, optimizer.state[parameter]
            return
        for lows, highs in zip(optimizer.fp16_groups, optimizer.fp32_groups):
            for low, high in zip(lows, highs):
                yield names[low], high, optimizer.optimizer.state[high]

    def flat_groups(self):
        """Masters and moments of flat groups by name, in the order in which round_robin_gradients laid them out: DeepSpeed's own
        queries look for them where they would be without it."""
        import torch
        import torch.distributed as dist
        optimizer = self.engine.optimizer
        names = {p: n for n, p in self.engine.module.named_parameters()}
        for g, members in enumerate(optimizer.round_robin_bit16_groups):
            master, group = optimizer.single_partition_of_fp32_groups[g], optimizer.real_dp_process_group[g]
            state = optimizer.optimizer.state[master]
            for slot, part in (("master", master), ("exp_avg", state["exp_avg"]), ("exp_avg_sq", state["exp_avg_sq"])):
                parts = [torch.empty_like(part) for _ in range(dist.get_world_size(group))]
                dist.all_gather(parts, part.detach().clone(), group=group)
                flat = torch.cat(parts)
                for parameter, offset in zip(members, optimizer.round_robin_bit16_offsets[g]):
                    yield f"{slot}/{names[parameter]}", flat[offset:offset + parameter.numel()].reshape(parameter.shape).clone()

    def held(self):
        import deepspeed
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
        optimizer = self.engine.optimizer
        whole = self.stage == 0 and not hasattr(optimizer, "bf16_groups")  # no BF16_Optimizer
        dealt = getattr(optimizer, "round_robin_gradients", False)
        if hasattr(optimizer, "_hp_optimizer_states_linked"):
            optimizer._hp_optimizer_states_linked = False
            optimizer._lazy_init_hp_params_optimizer_state()
        out = {}
        for name, parameter in self.engine.module.named_parameters():
            with (deepspeed.zero.GatheredParameters([parameter]) if self.stage == 3 else contextlib.nullcontext()):
                out["param/" + name] = parameter.detach().clone()
            if not parameter.requires_grad or whole or dealt:
                continue
            shape = out["param/" + name].shape
            out["master/" + name] = safe_get_full_fp32_param(parameter).detach().clone().reshape(shape)
            for slot in ("exp_avg", "exp_avg_sq"):
                out[f"{slot}/{name}"] = safe_get_full_optimizer_state(parameter, slot).detach().clone().reshape(shape)
        if dealt:
            out.update(self.flat_groups())
        if whole:
            for name, master, state in self.masters_and_state():
                out["master/" + name] = master.detach().clone()
                out.update({f"{slot}/{name}": state[slot].detach().clone() for slot in ("exp_avg", "exp_avg_sq")})
        return out | self.buffers()

    def buffers(self):
        return {"buffer/scale": self.engine.module.scale.detach().clone()}

    def facts(self):
        optimizer = self.engine.optimizer
        inner = getattr(optimizer, "optimizer", optimizer)
        steps = {float(s["step"]) for s in inner.state.values() if "step" in s}
        scaler = getattr(optimizer, "loss_scaler", None)
        return {"steps": sorted(steps), "groups": [{k: g[k] for k in ("lr", "weight_decay", "betas", "eps")} for g in optimizer.param_groups],
                "global_steps": self.engine.global_steps, "global_samples": self.engine.global_samples,
                "scheduler": self.engine.lr_scheduler.state_dict() if self.engine.lr_scheduler else None,
                "clip": getattr(optimizer, "clip_grad", None), "scale": scaler and [scaler.cur_scale, getattr(scaler, "cur_iter", None), getattr(scaler, "last_overflow_iter", None)],
                "client": {k: self.client[k] for k in ("note", "numbers") if self.client and k in self.client}}


class TorchRun:
    """A plain loop; saved as one .pt, or by FSDP2 as a DCP directory."""

    def __init__(self, case):
        import torch
        import torch.distributed as dist
        torch.manual_seed(case.get("seed", 1))
        self.model, self.sharded = build(), case["kind"] == "fsdp"
        if self.sharded:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard
            fully_shard(self.model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        self.optimizer = torch.optim.AdamW(groups_of(self.model))

    def follow(self, code):
        import torch
        exec(code, {"torch": torch, "model": self.model, "optimizer": self.optimizer})
        return 0

    def train(self, step):
        loss = self.model(batch(step))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def save(self, directory, step):
        import torch
        import torch.distributed as dist
        if not self.sharded:
            if dist.get_rank() == 0:
                torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": 7}, directory)
            return
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict
        model, optimizer = get_state_dict(self.model, self.optimizer)
        dcp.save({"model": model, "optimizer": optimizer, "epoch": 7}, checkpoint_id=directory)

    def held(self):
        out = {}
        whole = lambda t: (t.full_tensor() if hasattr(t, "full_tensor") else t).detach().clone()
        for name, parameter in self.model.named_parameters():
            out["param/" + name] = whole(parameter)
            if parameter.requires_grad:
                out["master/" + name] = out["param/" + name].clone()
                out.update({f"{slot}/{name}": whole(self.optimizer.state[parameter][slot]) for slot in ("exp_avg", "exp_avg_sq")})
        out["buffer/scale"] = self.model.scale.detach().clone()
        return out

    def facts(self):
        steps = {float(s["step"]) for s in self.optimizer.state.values()}
        return {"steps": sorted(steps),
                "groups": [{k: g[k] for k in ("lr", "weight_decay", "betas", "eps")} for g in self.optimizer.param_groups]}


def make_run(case):
    return DeepSpeedRun(case) if case.get("kind", "deepspeed") == "deepspeed" else TorchRun(case)


def run(out, case, make):
    import torch.distributed as dist
    from safetensors.torch import save_file
    at = os.path.join(out, case["name"])
    one = make(case)
    step = one.load(case["load"], **case.get("options", {})) if "load" in case else 0
    if "code" in case:  # lines of a document that load what is below the directory `at`
        os.chdir(case["at"])
        step = one.follow(case["code"])
    step = case.get("step", step)
    for _ in range(case.get("warm", 0)):
        one.train(step)
        step += 1
    told = one.facts()
    held = one.held()
    if "save" in case:
        one.save(case["save"], step)
    told["losses"] = [one.train(step + i) for i in range(STEPS_ON)]
    end = one.held()
    if dist.get_rank() == 0:
        save_file({k: t.contiguous() for k, t in held.items()}, at + ".held.safetensors")
        save_file({k: t.contiguous() for k, t in end.items()}, at + ".end.safetensors")
        with open(at + ".json", "w") as file:
            json.dump(told, file)
    dist.barrier()


def main(out, cases, make):
    """Runs the cases one after the other; does not return.

    make  a run of a case: with `load`, `train`, `save`, `facts` and `held`
    """
    import deepspeed
    import deepspeed.ops
    import torch.distributed as dist
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo")
    for case in cases:
        run(out, case, make)
    dist.barrier()
    time.sleep(0.5)  # a rank that leaves the last barrier early resets the others' sockets
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), make_run)
