"""Loads a DCP checkpoint as a trainer does: on several gloo processes, into FSDP2 modules and their optimizer.

    python dcp_ranks.py DIR OUT.safetensors MODEL.json --world 3 [--flatten] [--replicate 2] [--steps 2]

MODEL.json: {"parameters": {name: shape}, "buffers": {name: shape}, "tied": {name: name}, "groups": [[name, ...], ...]}; a parameter
that is in no group is frozen. OUT gets, from rank 0, the full model and optimizer state by the names of the truth (param/NAME,
exp_avg/NAME, state/step/NAME, buffer/NAME), and with --steps the same after that many steps of AdamW, by later/param/NAME...
"""
import argparse
import json
import os
import tempfile
import zlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as multiprocessing
from safetensors.torch import save_file
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


def build(spec):
    """A module with these names and shapes, with values that differ from the checkpoint."""
    root = nn.Module()

    def owner(name):
        at = root
        *above, last = name.split(".")
        for part in above:
            if not hasattr(at, part):
                at.add_module(part, nn.Module())
            at = getattr(at, part)
        return at, last

    trained = {name for group in spec["groups"] for name in group}
    for name, shape in spec["parameters"].items():
        if name not in spec.get("tied", {}):
            at, last = owner(name)
            at.register_parameter(last, nn.Parameter(torch.randn(shape), requires_grad=name in trained))
    for name, shape in spec.get("buffers", {}).items():
        at, last = owner(name)
        at.register_buffer(last, torch.zeros(shape, dtype=torch.int64))
    for name, other in spec.get("tied", {}).items():
        at, last = owner(name)
        source, source_last = owner(other)
        at.register_parameter(last, getattr(source, source_last))
    return root


def set_gradients(model, step):
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        generator = torch.Generator().manual_seed(step * 7919 + zlib.crc32(name.encode()) % 65536)
        gradient = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
        if isinstance(parameter, DTensor):
            gradient = distribute_tensor(gradient, parameter.device_mesh, parameter.placements, src_data_rank=None)
        parameter.grad = gradient


def whole_state(model, optimizer, prefix=""):
    """Tensors by the truth's names on rank 0, and the parameter groups."""
    full_model, full_optimizer = get_state_dict(
        model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() != 0:
        return {}, []
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    out = {prefix + ("param/" if name in parameters else "buffer/") + name: value for name, value in full_model.items()}
    for name, slots in full_optimizer["state"].items():
        for slot, value in slots.items():
            out[prefix + (f"{slot}/{name}" if slot.startswith("exp_avg") else f"state/{slot}/{name}")] = value
    # Copies, because the next step changes the values; one per name, because tied ones share memory.
    return {name: value.contiguous().clone() for name, value in out.items()}, full_optimizer["param_groups"]


def run(rank, words, rendezvous):
    dist.init_process_group("gloo", rank=rank, world_size=words.world, init_method=f"file://{rendezvous}")
    torch.manual_seed(17)
    spec = json.load(open(words.model))
    model = build(spec)
    sizes = (words.replicate, words.world // words.replicate) if words.replicate else (words.world,)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("rep", "shard")[-len(sizes):])
    if not spec.get("tied"):  # modules that share a parameter are one unit
        for child in model.children():
            if any(True for _ in child.parameters()):
                fully_shard(child, mesh=mesh)
    fully_shard(model, mesh=mesh)
    by_name = dict(model.named_parameters(remove_duplicate=False))
    optimizer = torch.optim.AdamW([{"params": [by_name[name] for name in group]} for group in spec["groups"]], lr=0.5,
                                  foreach=False)
    options = StateDictOptions(flatten_optimizer_state_dict=words.flatten)

    model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
    state = {"model": model_state, "optimizer": optimizer_state}
    dcp.load(state, checkpoint_id=words.directory)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"],
                   options=options)
    tensors, groups = whole_state(model, optimizer)
    for step in range(words.steps):
        set_gradients(model, 100 + step)
        optimizer.step()
    if words.steps:
        tensors |= whole_state(model, optimizer, "later/")[0]
    if rank == 0:
        save_file(tensors, words.out, metadata={"groups": json.dumps(groups)})
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("out")
    parser.add_argument("model")
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--replicate", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--flatten", action="store_true")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(run, args=(words, os.path.join(folder, "rendezvous")), nprocs=words.world,
                                        start_method="fork")


if __name__ == "__main__":
    main()
