"""One rank of a group that loads files of ranks with megatron-core, as its --ckpt-format torch does: the model's state dict,
the optimizer's, and the distributed optimizer's file. Saves what this rank got, by name; and, as Megatron-LM does, files of
ranks in OUT/again.

python megatron_file_ranks.py RANK WORLD TENSOR PIPELINE EXPERT EXPERT_TENSOR PORT ITERATION OUT"""
import pathlib
import sys

import torch

from megatron_model import join_group, rank_folder, resumed

rank, world, *sizes, port = map(int, sys.argv[1:8])
iteration, out = map(pathlib.Path, sys.argv[8:10])
join_group(rank, world, port, *sizes)
state, model, optimizer = resumed(iteration, *sizes)
is_distributed = state["args"].use_distributed_optimizer

got = {"model": dict(model.state_dict()), "master": {}, "exp_avg": {}, "exp_avg_sq": {}}
got["model"] = {name: tensor for name, tensor in got["model"].items() if isinstance(tensor, torch.Tensor)}
for one in getattr(optimizer, "chained_optimizers", [optimizer]):
    for name, weight in model.named_parameters():
        begin = 0  # of what this data-parallel rank has of the weight
        if is_distributed:
            if weight not in one.model_param_group_index_map:
                continue
            held = one._get_main_param_and_optimizer_states(weight)
            held["master"] = held["param"]
            begin = one._get_model_param_range_map(weight)["param"].start
        else:
            if weight.main_param not in one.optimizer.state:
                continue
            held = {**one.optimizer.state[weight.main_param], "master": weight.main_param}
        for slot in ("master", "exp_avg", "exp_avg_sq"):
            got[slot][name] = begin, held[slot].detach().flatten().clone()
got["steps"] = {float(group["step"]) for group in optimizer.param_groups if "step" in group}
torch.save(got, out / f"{rank}.pt")

folder = out / "again" / iteration.name / rank_folder(*sizes[:3])
folder.mkdir(parents=True, exist_ok=True)
torch.save(state | {"model": model.state_dict_for_save_checkpoint(), "optimizer": optimizer.state_dict()}, folder / "model_optim_rng.pt")
if is_distributed:
    optimizer.save_parameter_state(str(folder / "distrib_optim.pt"))
(out / "again" / "latest_checkpointed_iteration.txt").write_text(str(state["iteration"]))
torch.distributed.barrier()
