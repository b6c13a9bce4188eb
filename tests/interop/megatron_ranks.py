"""One rank of a group that loads a torch_dist checkpoint with megatron-core: the model as its code asks for it, and the
optimizer's state by weight. Saves what this rank got, by key and place.

python megatron_ranks.py RANK WORLD TENSOR PIPELINE EXPERT EXPERT_TENSOR PORT CHECKPOINT OUT [VOCABULARY]

VOCABULARY: rows with padding, where the run's arguments have another number."""
import dataclasses
import sys

import torch

from megatron_model import config_of, join_group, model_of

rank, world, *sizes, port = map(int, sys.argv[1:8])
checkpoint, out = sys.argv[8:10]
join_group(rank, world, port, *sizes)

from megatron.core import dist_checkpointing, parallel_state  # noqa: E402
from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory  # noqa: E402

common = dist_checkpointing.load_common_state_dict(checkpoint)
args = common["args"]
if not hasattr(args, "num_experts"):
    args.num_experts = None
if len(sys.argv) > 10:
    args.padded_vocab_size = int(sys.argv[10])
model = model_of(args, config_of(args, *sizes))
args.use_distributed_optimizer = getattr(args, "use_distributed_optimizer", True)
state = model.sharded_state_dict(metadata={"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)})
wanted = {"model": state}
names = [] if "optimizer" not in common else ["param" if args.use_distributed_optimizer else "fp32_param", "exp_avg", "exp_avg_sq"]
trained = {name for name, _ in model.named_parameters()}
for slot in names:
    own = wanted[slot] = {}
    for name, weight in state.items():
        if name not in trained or not isinstance(weight, (ShardedTensor, ShardedTensorFactory)):
            continue
        changes = {"key": f"optimizer.state.{slot}.{weight.key}", "data": torch.zeros_like(weight.data, dtype=torch.float32)}
        if isinstance(weight, ShardedTensor):
            changes["dtype"] = torch.float32
        own[name] = dataclasses.replace(weight, **changes)
loaded = dist_checkpointing.load(wanted, checkpoint, strict="raise_unexpected")
torch.save({group: {k: v for k, v in loaded[group].items() if isinstance(v, torch.Tensor)} for group in wanted}
           | {"common": {k: loaded[k] for k in ("iteration", "checkpoint_version") if k in loaded},
              "groups": loaded.get("optimizer"), "scheduler": loaded.get("opt_param_scheduler")},
           f"{out}/{rank}.pt")
torch.distributed.barrier()
