"""megatron-core loads what ckpt wrote, with another tensor- and pipeline-parallel size: model, masters, moments."""
import math
import os
import pathlib
import socket
import subprocess
import sys

import pytest
import torch
import torch.distributed.checkpoint
from safetensors.torch import load_file

from conftest import GOLDEN

pytest.importorskip("megatron.core")
RUNS = GOLDEN / "megatron"
VOCABULARY = {"torch_dist_mtp_tp2_pp2": 50}  # of a run, without padding; of the others it is 99
OF_VOCABULARY = ("embedding.word_embeddings.weight", "output_layer.weight")
NORMS = {"input_layernorm.": "self_attention.linear_qkv.layer_norm_", "pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_"}


def load(checkpoint, tensor, pipeline, out, expert=1, script="megatron_ranks.py", copies=1, expert_tensor=None, options=()):
    """What each rank of a job of this size loads."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = pathlib.Path(__file__).with_name(script)
    out.mkdir()
    expert_tensor = expert_tensor or tensor
    ranks = range(pipeline * math.lcm(tensor, expert * expert_tensor) * copies)
    sizes = [str(size) for size in (len(ranks), tensor, pipeline, expert, expert_tensor, port)]
    jobs = [subprocess.Popen([sys.executable, script, str(rank), *sizes, checkpoint, out, *map(str, options)],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env=os.environ | {"OMP_NUM_THREADS": "1"}) for rank in ranks]
    texts = [job.communicate(timeout=300)[0] for job in jobs]
    assert all(job.returncode == 0 for job in jobs), "\n".join(texts)
    return [torch.load(out / f"{rank}.pt", weights_only=False) for rank in ranks if (out / f"{rank}.pt").exists()]


def key_of(name):
    """Of a weight of the model: its name without the layer, and the layer; the names of experts as they are stored."""
    layer = None
    if name.startswith("decoder.layers."):
        layer, rest = name.removeprefix("decoder.layers.").split(".", 1)
        name, layer = "decoder.layers." + rest, int(layer)
    for local, stored in NORMS.items():
        name = name.replace(local, stored)
    expert = None
    if ".local_experts." in name:
        head, rest = name.split(".local_experts.")
        expert, rest = rest.split(".", 1)
        name, expert = f"{head}.experts.{rest}", int(expert)
    return name, tuple(i for i in (layer, expert) if i is not None)


def compare_with_truth(loaded, truth):
    """The number of compared tensors. The truth of a run may lack one kind of state."""
    compared, kinds = 0, {key.split("/")[0] for key in truth}
    for group, tensors in loaded.items():
        if group in ("common", "groups", "scheduler"):
            continue
        for name, tensor in tensors.items():
            key, index = key_of(name)
            kind = {"model": "param", "param": "master", "fp32_param": "master"}.get(group, group)
            if kind not in kinds:
                continue
            expected = truth[f"{kind}/{key}"][index]
            assert tensor.dtype == expected.dtype and torch.equal(tensor, expected), (group, name)
            compared += 1
    return compared


@pytest.mark.parametrize("run", ["torch_dist_tp2_pp2_dp2", "torch_dist_buckets_tp2_pp2_ep2", "torch_dist_flattened_tp2_pp2_dp2",
                                 "torch_dist_mtp_tp2_pp2", "zarr_tp2_pp2_dp2", "legacy_tp2_pp2",
                                 "legacy_moe_ep2_pp2_dp2", pytest.param("legacy_tp2_pp2_dp2_distopt", marks=pytest.mark.slow)])
def test_megatron_loads_a_run_at_another_size(ckpt, out, run):
    ckpt("convert", RUNS / run / "ckpt", out / "run", "--to", "megatron")
    assert (out / "run" / "latest_checkpointed_iteration.txt").read_text() == "2"
    whole = load(out / "run" / "iter_0000002", 1, 1, out / "whole")[0]
    assert whole["common"]["iteration"] == 2
    truth = load_file(RUNS / run / "truth.safetensors")
    assert compare_with_truth(whole, truth) == len({key.split("/")[0] for key in truth}) * len(whole["model"])
    groups = whole["groups"]
    groups = list(groups.values()) if 0 in groups else [groups]
    assert all("lr" in group and len(group["betas"]) == 2 for one in groups for group in one["optimizer"]["param_groups"])
    assert whole["scheduler"]["num_steps"] > 0


def test_ranks_get_what_ranks_of_the_source_had(ckpt, out):
    source = RUNS / "legacy_tp2_pp2_dp2_distopt" / "ckpt"
    ckpt("convert", source, out / "run", "--to", "megatron", "--ranks", 3)
    for rank, loaded in enumerate(load(out / "run" / "iter_0000002", 2, 2, out / "ranks")):
        file = source / "iter_0000002" / f"mp_rank_{rank % 2:02}_{rank // 2:03}" / "model_optim_rng.pt"
        ckpt("convert", file, out / f"{rank}.safetensors", "--only", "weights")
        held = load_file(out / f"{rank}.safetensors")
        had = {name: tensor for name, tensor in held.items() if not name.startswith("rng_state.")}
        assert set(loaded["model"]) == set(had)
        for name, tensor in had.items():
            assert torch.equal(loaded["model"][name], tensor), name
            assert torch.equal(loaded["param"][name].to(torch.bfloat16), tensor), name


def test_a_run_converted_twice_is_the_same(ckpt, out):
    source = RUNS / "torch_dist_tp2_pp2_dp2" / "ckpt"
    notes = ckpt("convert", source, out / "direct", "--to", "megatron").stderr
    assert "torch_dist:" not in notes, notes  # all of it has a place
    ckpt("convert", source, out / "middle", "--to", "ckpt")
    ckpt("convert", out / "middle", out / "run", "--to", "megatron")
    ckpt("verify", out / "run", "--against", source)
    whole = load(out / "run" / "iter_0000002", 1, 1, out / "whole")[0]
    assert compare_with_truth(whole, load_file(RUNS / "torch_dist_tp2_pp2_dp2" / "truth.safetensors")) >= 36


def test_a_model_of_transformers_becomes_a_release(ckpt, out):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = transformers.LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=16, tie_word_embeddings=False)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(out / "hf")
    ckpt("convert", out / "hf", out / "run", "--to", "megatron", "--names", "megatron", "--vocab-multiple", 16)
    assert (out / "run" / "latest_checkpointed_iteration.txt").read_text() == "release"
    for tensor, pipeline in ((1, 1), (2, 1), (1, 2)):
        load(out / "run" / "release", tensor, pipeline, out / f"ranks{tensor}{pipeline}")
    ckpt("convert", out / "run", out / "back", "--to", "safetensors", "--names", "hf", "--only", "weights")
    before, after = load_file(out / "hf" / "model.safetensors"), load_file(out / "back" / "model.safetensors")
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


# Tensor-, pipeline-, expert-parallel ranks, and tensor-parallel ranks of an expert.
SIZES = [("torch_dist_tp2_pp2_dp2", 2, 1, 1, 2), ("legacy_tp2_pp2", 1, 2, 1, 1), ("legacy_moe_ep2_pp2_dp2", 1, 1, 2, 1),
         ("legacy_moe_ep2_pp2_dp2", 2, 1, 2, 1), ("torch_dist_mtp_tp2_pp2", 1, 2, 1, 1)]
SLOW_SIZES = [("torch_dist_tp2_pp2_dp2", 2, 2, 1, 2), ("legacy_tp2_pp2_dp2_distopt", 1, 4, 1, 1), ("legacy_moe_ep2_pp2_dp2", 1, 1, 1, 1),
              ("legacy_moe_ep2_pp2_dp2", 1, 2, 2, 1), ("legacy_moe_ep2_pp2_dp2", 1, 1, 4, 1), ("legacy_moe_ep2_pp2_dp2", 2, 1, 1, 1),
              ("legacy_moe_ep2_pp2_dp2", 2, 2, 4, 1), ("legacy_moe_ep2_pp2_dp2", 2, 1, 2, 2), ("torch_dist_mtp_tp2_pp2", 2, 2, 1, 2),
              ("torch_dist_mtp_tp2_pp2", 2, 1, 1, 2)]


@pytest.mark.parametrize("run,tensor,pipeline,expert,expert_tensor",
                         SIZES + [pytest.param(*one, marks=pytest.mark.slow) for one in SLOW_SIZES])
def test_megatron_loads_files_of_ranks_of_another_size(ckpt, out, run, tensor, pipeline, expert, expert_tensor):
    """What each rank loads from its files is what it loads of the same run in torch_dist, which all sizes load."""
    ckpt("convert", RUNS / run / "ckpt", out / "run", "--tp", tensor, "--pp", pipeline, "--ep", expert, "--etp", expert_tensor)
    assert (out / "run" / "latest_checkpointed_iteration.txt").read_text() == "2"
    ckpt("convert", RUNS / run / "ckpt", out / "whole", "--to", "megatron")
    got = load(out / "run" / "iter_0000002", tensor, pipeline, out / "files", expert, "megatron_file_ranks.py",
               expert_tensor=expert_tensor)
    padded = tensor * len(got[0]["model"]["embedding.word_embeddings.weight"])
    wanted = load(out / "whole" / "iter_0000002", tensor, pipeline, out / "expected", expert, expert_tensor=expert_tensor, options=[padded])
    compared = 0
    for rank, (mine, expected) in enumerate(zip(got, wanted, strict=True)):
        vocabulary = max(0, min(padded // tensor, VOCABULARY.get(run, 99) - rank % tensor * (padded // tensor)))  # of this rank; the rest is padding
        assert mine["steps"] in ({2.0}, set())
        masters = expected["param" if "param" in expected else "fp32_param"]
        assert set(mine["model"]) == set(expected["model"])
        for name, held in mine["model"].items():
            assert held.shape == expected["model"][name].shape, name
            rows = vocabulary if name in OF_VOCABULARY else len(held)
            assert torch.equal(held[:rows], expected["model"][name][:rows]), name
        for slot, same in (("master", masters), ("exp_avg", expected["exp_avg"]), ("exp_avg_sq", expected["exp_avg_sq"])):
            # Expert-parallel ranks are data-parallel ones of the other weights, whose state is divided among them.
            assert set(mine[slot]) == set(same) or (expert > 1 and set(mine[slot]) < set(same)), slot
            for name, (begin, held) in mine[slot].items():
                end = min(begin + held.numel(), vocabulary * same[name].shape[1] if name in OF_VOCABULARY else same[name].numel())
                assert torch.equal(held[:max(0, end - begin)], same[name].flatten()[begin:end]), (slot, name)
                compared += 1
    assert compared >= 3 * 20
    same = ckpt("verify", out / "files" / "again", "--against", out / "run").stdout  # what megatron-core saves of them
    assert " 0 different, 0 only here, 0 only there" in same, same


@pytest.mark.slow
@pytest.mark.parametrize("run,tensor,expert", [("legacy_moe_ep2_pp2_dp2", 1, 2), ("torch_dist_tp2_pp2_dp2", 2, 1)])
def test_a_run_with_the_optimizer_in_buckets_loads_at_another_size(ckpt, out, run, tensor, expert):
    """Data-parallel ranks save it; Megatron-LM itself loads it at this tensor- and expert-parallel size only."""
    ckpt("convert", RUNS / run / "ckpt", out / "files", "--tp", tensor, "--pp", 1, "--ep", expert)
    load(out / "files" / "iter_0000002", tensor, 1, out / "buckets", expert, "megatron_bucket_ranks.py", copies=2)
    names = ckpt("ls", out / "buckets").stdout
    assert "gbuf_idx" not in names and "optimizer.state.decoder.layers." in names
    ckpt("convert", out / "buckets", out / "run", "--to", "megatron")
    whole = load(out / "run" / "iter_0000002", 1, 1, out / "whole")[0]
    truth = load_file(RUNS / run / "truth.safetensors")
    assert compare_with_truth(whole, truth) == len({key.split("/")[0] for key in truth}) * len(whole["model"])
    optimizers = [whole["groups"][number] for number in sorted(whole["groups"])] if 0 in whole["groups"] else [whole["groups"]]
    assert all(one["optimizer"]["param_groups"][0]["step"] == 2.0 for one in optimizers)
    for source, one in ((out / "buckets", "one"), (RUNS / run / "ckpt", "direct")):
        ckpt("convert", source, out / one, "--tp", 1, "--pp", 1)
    same = ckpt("verify", out / "one", "--against", out / "direct").stdout
    assert " identical, 0 different, 0 only here, 0 only there" in same, same


def test_state_of_megatron_fsdp_belongs_to_its_weights(ckpt, out):
    """fsdp_dtensor: plain DCP, in which weights and state have other wrappers before their names."""
    weight, bias = "decoder.layers.0.mlp.linear_fc2.weight", "decoder.final_layernorm.weight"
    values = {name: torch.randn(shape) for name, shape in ((weight, (8, 16)), (bias, (8,)))}
    state = {f"module.module.{name}": {"exp_avg": value + 1, "exp_avg_sq": value + 2} for name, value in values.items()}
    folder = out / "run" / "iter_0000005"
    torch.distributed.checkpoint.save({"model": {f"module.{name}": value for name, value in values.items()}, "optimizer": {"state": state},
                                       "iteration": 5}, checkpoint_id=folder)
    (out / "run" / "latest_checkpointed_iteration.txt").write_text("5")
    ckpt("convert", out / "run", out / "whole.safetensors", "--allow-skipped")
    got = load_file(out / "whole.safetensors")
    for name, value in values.items():
        assert torch.equal(got[f"model.module.{name}"], value)
        for slot, tensor in state[f"module.module.{name}"].items():
            assert torch.equal(got[f"optimizer.state.model.module.{name}.{slot}"], tensor)


def test_the_common_state_is_what_megatron_core_asks_for(ckpt, out):
    """A run without the distributed optimizer, with a loss scale: common.pt has the step and the scale, and no numbers of parameters."""
    ckpt("convert", RUNS / "legacy_tp2_pp2" / "ckpt", out / "run", "--tp", 2, "--pp", 2)  # without enumerations of another release
    for file in (out / "run").glob("iter_*/*/model_optim_rng.pt"):
        state = torch.load(file, weights_only=False)
        state["optimizer"]["grad_scaler"] = {"scale": torch.tensor([512.0]), "growth_tracker": 3, "hysteresis_tracker": 2}
        torch.save(state, file)
    ckpt("convert", out / "run", out / "whole", "--to", "megatron", "--allow-skipped")
    optimizer = torch.load(out / "whole" / "iter_0000002" / "common.pt", weights_only=False)["optimizer"]
    assert optimizer["grad_scaler"]["growth_tracker"] == 3 and torch.equal(optimizer["grad_scaler"]["scale"], torch.tensor([512.0]))
    assert optimizer["optimizer"]["state"] == {"common_step": 2} and not any("params" in group for group in optimizer["optimizer"]["param_groups"])
    ckpt("convert", out / "whole", out / "ranks", "--tp", 1, "--pp", 1, "--allow-skipped")
    optimizer = torch.load(out / "ranks" / "iter_0000002" / "mp_rank_00" / "model_optim_rng.pt", weights_only=False)["optimizer"]
    assert torch.equal(optimizer["grad_scaler"]["scale"], torch.tensor([512.0]))
    assert {float(one["step"]) for one in optimizer["optimizer"]["state"].values()} == {2.0}


def test_a_run_of_megatron_bridge_has_its_sizes_in_yaml(ckpt, out):
    """A run without args: run_config.yaml describes the model, train_state.pt how far it is."""
    ckpt("convert", RUNS / "torch_dist_flattened_tp2_pp2_dp2" / "ckpt", out / "run", "--to", "megatron")
    ckpt("convert", out / "run", out / "expected", "--to", "safetensors", "--names", "hf", "--only", "weights")
    iteration = out / "run" / "iter_0000002"
    common = torch.load(iteration / "common.pt", weights_only=False)
    args = common.pop("args")
    torch.save(common, iteration / "common.pt")
    torch.save({"step": torch.tensor(2, dtype=torch.int32), "consumed_train_samples": torch.tensor(8, dtype=torch.int32)}, iteration / "train_state.pt")
    same = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "kv_channels", "normalization", "rotary_base",
            "rotary_percent", "position_embedding_type", "add_bias_linear", "add_qkv_bias", "qk_layernorm", "tensor_model_parallel_size")
    model = {name: getattr(args, name) for name in same}
    model |= {"vocab_size": 100, "gated_linear_unit": True, "layernorm_epsilon": args.layernorm_epsilon, "seq_length": args.max_position_embeddings,
              "share_embeddings_and_output_weights": False, "activation_func": {"_target_": "torch.nn.functional.silu", "_call_": False}}
    yaml = pytest.importorskip("yaml")
    (iteration / "run_config.yaml").write_text(yaml.safe_dump({"checkpoint": {"save_optim": True}, "model": model}))
    ckpt("convert", out / "run", out / "hf", "--to", "safetensors", "--names", "hf", "--only", "weights", "--dtype", "bf16", "--allow-skipped")
    got, expected = load_file(out / "hf" / "model.safetensors"), load_file(out / "expected" / "model.safetensors")
    assert got.keys() == expected.keys() and all(torch.equal(got[name], expected[name].to(torch.bfloat16)) for name in got)
    ckpt("convert", out / "run", out / "all.safetensors", "--allow-skipped")
    assert load_file(out / "all.safetensors")["train_state.consumed_train_samples"] == 8
