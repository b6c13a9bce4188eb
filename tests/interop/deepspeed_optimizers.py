"""One rank of small DeepSpeed runs on the CPU with optimizers other than Adam, one after another in one launch.

    RANK=0 WORLD_SIZE=2 ... python deepspeed_optimizers.py OUT '[{"name": "a", "stage": 1, "optimizer": "NAdam", "save": "DIR"}]'

Every rank trains on the same data. Rank 0 writes OUT/NAME.json: the numbers in the optimizer's state, and the losses of three more steps.
"""
import json
import os
import sys
import time

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # Muon's kernels


def start(case):
    import deepspeed
    import torch
    from torch import nn
    torch.manual_seed(case.get("seed", 1))
    model = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 3))
    config = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True, "bf16": {"enabled": True},
              "zero_optimization": {"stage": case["stage"]}}
    if case["optimizer"] == "muon":
        for parameter in model.parameters():
            parameter.use_muon = parameter.ndim > 1
        config["optimizer"] = {"type": "muon", "params": {"lr": 0.01, "torch_adam": True}}
        return deepspeed.initialize(model=model, config=config, model_parameters=list(model.parameters()))[0]
    parameters = [p for _, p in sorted(model.named_parameters(), reverse=True)] if case.get("sorted") else model.parameters()
    return deepspeed.initialize(model=model, config=config, optimizer=getattr(torch.optim, case["optimizer"])(parameters, lr=0.01))[0]


def train(engine, step):
    import torch
    batch = torch.randn(4, 5, generator=torch.Generator().manual_seed(step)).bfloat16()
    loss = engine(batch).float().pow(2).mean()
    engine.backward(loss)
    engine.step()
    return loss.item()


def numbers(engine):
    """The numbers in the optimizer's state, each with all values that it has."""
    optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
    found = {}
    for state in optimizer.state.values():
        for key, value in state.items():
            if not hasattr(value, "ndim") or value.ndim == 0:
                found.setdefault(key, set()).add(float(value))
    return {key: sorted(values) for key, values in found.items()}


def main(out, cases):
    import deepspeed
    import deepspeed.ops
    import torch
    import torch.distributed as dist
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo")
    for case in cases:
        engine = start(case)
        if "load" in case:
            assert engine.load_checkpoint(case["load"])[0]
        else:
            for step in range(3):
                train(engine, step)
        if "save" in case:
            engine.save_checkpoint(case["save"], client_state={"random": {"torch": torch.arange(7), "others": [1, (2.5, None)]}})
        told = {"numbers": numbers(engine), "losses": [train(engine, step) for step in range(3, 6)]}
        if dist.get_rank() == 0:
            with open(os.path.join(out, case["name"] + ".json"), "w") as file:
                json.dump(told, file)
    dist.barrier()
    time.sleep(0.5)  # a rank that leaves the last barrier early resets the others' sockets
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
