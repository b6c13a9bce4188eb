"""One rank of a group that loads files of ranks with megatron-core, and saves the run in torch_dist with the optimizer's state in
buckets (dp_reshardable), which is megatron-core's default and loads at no other tensor- and pipeline-parallel size. Each part of
the model is held by two data-parallel ranks.

python megatron_bucket_ranks.py RANK WORLD TENSOR PIPELINE EXPERT EXPERT_TENSOR PORT ITERATION OUT"""
import pathlib
import sys

from megatron_model import join_group, resumed


def main():
    rank, world, *sizes, port = map(int, sys.argv[1:8])
    iteration, out = map(pathlib.Path, sys.argv[8:10])
    join_group(rank, world, port, *sizes)
    state, model, optimizer = resumed(iteration, *sizes)
    from megatron.core import dist_checkpointing
    metadata = {"distrib_optim_sharding_type": "dp_reshardable", "chained_optim_avoid_prefix": True, "singleton_local_shards": False}
    weights = model.sharded_state_dict(metadata=metadata)
    whole = {"model": weights, "optimizer": optimizer.sharded_state_dict(weights, metadata=metadata), "args": state["args"],
             "iteration": state["iteration"], "checkpoint_version": 3.0, "opt_param_scheduler": state["opt_param_scheduler"]}
    folder = out / f"iter_{state['iteration']:07d}"
    folder.mkdir(exist_ok=True)
    dist_checkpointing.save(whole, str(folder), ("torch_dist", 1), content_metadata=metadata)
    if rank == 0:
        (out / "latest_checkpointed_iteration.txt").write_text(str(state["iteration"]))


if __name__ == "__main__":  # megatron-core starts a process that imports this file
    main()
