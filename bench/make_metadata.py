"""Writes checkpoints whose metadata is large and whose tensors are holes, for the case `metadata` of bench.py.

    python bench/make_metadata.py OUT --case dcp|deepspeed --tensors 10000 --ranks 256 [--sharded]

dcp: `.metadata` with torch's own classes, and one data file per rank. Each tensor is in one rank's file; with --sharded
each rank holds a part of every tensor (5,550 tensors on 256 ranks make 200 MB). deepspeed: ZeRO stage 2, the files of all
ranks made from those of a small genuine checkpoint. Needs: torch; deepspeed for deepspeed.
"""
import argparse
import pathlib
import pickle

ROOT = pathlib.Path(__file__).resolve().parent.parent
ITEM = 1536  # bytes of one item in a data file


def dcp(args):
    import torch
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties,
                                                       TensorStorageMetadata)

    rows, columns = 8, 4096
    state, storage, ends = {}, {}, [0] * args.ranks
    planner = {}
    for t in range(args.tensors):
        fqn = f"model.layers.{t // 9}.block{t % 9}.weight"
        ranks = range(args.ranks) if args.sharded else [t % args.ranks]
        chunks = []
        for i, rank in enumerate(ranks):
            offsets = torch.Size([i * rows, 0])
            chunks.append(ChunkStorageMetadata(offsets=offsets, sizes=torch.Size([rows, columns])))
            storage[MetadataIndex(fqn, offsets, i)] = _StorageInfo(f"__{rank}_0.distcp", ends[rank], ITEM)
            ends[rank] += ITEM
        state[fqn] = TensorStorageMetadata(properties=TensorProperties(dtype=torch.bfloat16),
                                           size=torch.Size([len(chunks) * rows, columns]), chunks=chunks)
        planner[fqn] = ("model", *fqn.split(".")[1:])
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    with open(out / ".metadata", "wb") as file:
        pickle.dump(Metadata(state_dict_metadata=state, planner_data=planner, storage_data=storage), file)
    for rank, end in enumerate(ends):
        with open(out / f"__{rank}_0.distcp", "wb") as file:
            file.truncate(end)


def deepspeed(args):
    from collections import OrderedDict

    import torch
    from deepspeed.utils.tensor_fragment import fragment_address

    source = ROOT / "tests/golden/deepspeed/zero2_bf16_dp4/ckpt/global_step3"
    name = "bf16_zero_pp_rank_{}_mp_rank_00_optim_states.pt"
    model = torch.load(source / "mp_rank_00_model_states.pt", weights_only=False)
    optim = torch.load(source / name.format(0), weights_only=False)
    shape, elements = torch.Size([8, 64]), 512
    names = [f"model.layers.{t // 9}.block{t % 9}.weight" for t in range(args.tensors)]
    part = -(-args.tensors * elements // args.ranks)
    part += part % 2
    out = pathlib.Path(args.out) / "global_step3"
    out.mkdir(parents=True, exist_ok=True)
    model.update(module=OrderedDict((n, torch.zeros(shape, dtype=torch.bfloat16)) for n in names),
                 param_shapes=[OrderedDict((n, shape) for n in names)], shared_params={}, dp_world_size=args.ranks)
    torch.save(model, out / "mp_rank_00_model_states.pt")
    state = optim["optimizer_state_dict"]
    state["param_alignment_paddings"] = [[0] * args.tensors]
    base = state["base_optimizer_state"]
    base["param_groups"] = [dict(base["param_groups"][0], params=[0])]
    for rank in range(args.ranks):
        begin, end = rank * part, min((rank + 1) * part, args.tensors * elements)
        slices = OrderedDict()
        for t in range(begin // elements, -(-end // elements)):
            first, last = max(begin, t * elements), min(end, (t + 1) * elements)
            slices[names[t]] = fragment_address(numel=last - first, start=first - begin)
        values = [torch.zeros(end - begin) for _ in range(3)]
        slots = dict(base["state"][0], exp_avg=values[1], exp_avg_sq=values[2])
        base["state"] = {0: slots}
        state.update(single_partition_of_fp32_groups=[values[0]], partition_count=[args.ranks], param_slice_mappings=[slices],
                     group_paddings=[part * args.ranks - args.tensors * elements if rank == args.ranks - 1 else 0])
        torch.save(optim, out / name.format(rank))
    (out.parent / "latest").write_text("global_step3")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--case", choices=["dcp", "deepspeed"], required=True)
    parser.add_argument("--tensors", type=int, default=10000)
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--sharded", action="store_true")
    args = parser.parse_args()
    (dcp if args.case == "dcp" else deepspeed)(args)


main()
