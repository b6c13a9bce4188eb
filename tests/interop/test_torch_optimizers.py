"""Optimizers of torch.optim, each through every target that a plain loop can resume from: the next losses are equal."""
import copy

import pytest

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

OPTIM = torch.optim
OPTIMIZERS = {
    "sgd": lambda p: OPTIM.SGD(p, lr=0.01), "momentum": lambda p: OPTIM.SGD(p, lr=0.01, momentum=0.9),
    "adafactor": lambda p: OPTIM.Adafactor(p, lr=0.01), "rmsprop": lambda p: OPTIM.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
    "adagrad": lambda p: OPTIM.Adagrad(p, lr=0.01), "nadam": lambda p: OPTIM.NAdam(p, lr=0.01), "rprop": lambda p: OPTIM.Rprop(p, lr=0.01),
    "asgd": lambda p: OPTIM.ASGD(p, lr=0.01), "amsgrad": lambda p: OPTIM.AdamW(p, lr=0.01, amsgrad=True),
    "fused": lambda p: OPTIM.AdamW(p, lr=0.01, fused=True),
    "tensor_lr": lambda p: OPTIM.AdamW(p, lr=torch.tensor(0.01), foreach=False),
}
WAYS = {"torch": ["r.pt"], "universal": ["u", "r.pt"], "dcp": ["r --to dcp --ranks 3"], "zero0": ["z --to deepspeed --zero-stage 0 --dp 2", "r.pt"]}
TENSOR_LR = {"zero1": ["z --to deepspeed --zero-stage 1 --dp 3", "r.pt"], "zero3": ["z --to deepspeed --zero-stage 3 --dp 2", "r.pt"],
             "zero3_dcp": ["z --to deepspeed --zero-stage 3 --dp 2", "r --to dcp --ranks 3"]}
REFUSED = {("sgd", "dcp"), ("sgd", "zero0")}  # indistinguishable members of two groups


def model():
    torch.manual_seed(0)
    out = torch.nn.Sequential(torch.nn.Linear(8, 17), torch.nn.BatchNorm1d(17), torch.nn.Linear(17, 3, bias=False), torch.nn.Linear(3, 1))
    out[3].bias.requires_grad_(False)
    return out


def groups(net):
    live = [p for p in net.parameters() if p.requires_grad]
    return [{"params": [p for p in live if p.ndim > 1], "weight_decay": 0.1}, {"params": [p for p in live if p.ndim < 2], "lr": 1e-3}]


def train(net, optimizer, first, last):
    losses = []
    for step in range(first, last):
        optimizer.zero_grad()
        loss = net(torch.randn(16, 8, generator=torch.Generator().manual_seed(step))).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name, way", [*((name, way) for way in WAYS for name in OPTIMIZERS), *(("tensor_lr", way) for way in TENSOR_LR)])
def test_training_goes_on(ckpt, out, name, way):
    net = model()
    optimizer = OPTIMIZERS[name](groups(net))
    train(net, optimizer, 0, 3)
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, out / "source.pt")
    truth = train(net, optimizer, 3, 6)
    source = out / "source.pt"
    for target in {**WAYS, **TENSOR_LR}[way]:
        target, *words = target.split()
        if (name, way) in REFUSED:
            assert "do not identify them" in ckpt("convert", source, out / target, *words, expect=12).stderr
            return
        if source.name == "z":
            words += ["--weights", "param"]
        ckpt("convert", source, out / target, *words)
        source = out / target
    net = model()
    for parameter in net.parameters():
        parameter.data.fill_(9)
    optimizer = OPTIMIZERS[name](groups(net))
    if way.endswith("dcp"):
        weights, state = get_state_dict(net, optimizer)
        state = {"model": weights, "optimizer": state}
        dcp.load(state, checkpoint_id=source, no_dist=True)
        set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    else:
        state = torch.load(source, weights_only=True, mmap=True)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
    assert train(net, optimizer, 3, 6) == truth
