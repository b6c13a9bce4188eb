"""Writes a Megatron-LM checkpoint of TP 4 x PP 2 as files of ranks, with masters and moments in each rank's file, for the benchmark.

    python bench/make_megatron.py OUT --gib 4

The keys and arguments are those of the genuine run in tests/golden/megatron/legacy_tp2_pp2; the sizes are larger and the values
random (incompressible). Needs: torch.
"""
import argparse
import enum
import pathlib
import pickle
import types

import torch

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/megatron/legacy_tp2_pp2/ckpt/iter_0000002/mp_rank_00_000/model_optim_rng.pt"
TENSOR, PIPELINE = 4, 2
HIDDEN, FFN, HEADS, GROUPS, CHANNELS, VOCABULARY = 2048, 4096, 16, 8, 128, 8192
BYTES_PER_PARAMETER = 14  # bf16 weight, fp32 master, two fp32 moments


class PlainUnpickler(pickle.Unpickler):
    """Megatron's own classes become text: no file of the benchmark needs them."""

    def find_class(self, module, name):
        if module.split(".")[0] in ("megatron", "transformer_engine"):
            return lambda *values: ".".join(map(str, (name, *values)))
        return super().find_class(module, name)


def genuine():
    lenient = types.ModuleType("lenient")
    lenient.__dict__.update(pickle.__dict__, Unpickler=PlainUnpickler)
    return torch.load(GOLDEN, weights_only=False, pickle_module=lenient)


def shapes(layers, stage):
    """Of one tensor-parallel rank, in the order of the model."""
    out = {"embedding.word_embeddings.weight": (VOCABULARY // TENSOR, HIDDEN)} if stage == 0 else {}
    for i in range(layers):
        at = f"decoder.layers.{i}."
        out |= {at + "input_layernorm.weight": (HIDDEN,),
                at + "self_attention.linear_proj.weight": (HIDDEN, HEADS * CHANNELS // TENSOR),
                at + "self_attention.linear_qkv.weight": ((HEADS + 2 * GROUPS) * CHANNELS // TENSOR, HIDDEN),
                at + "pre_mlp_layernorm.weight": (HIDDEN,),
                at + "mlp.linear_fc1.weight": (2 * FFN // TENSOR, HIDDEN),
                at + "mlp.linear_fc2.weight": (HIDDEN, FFN // TENSOR)}
    if stage == PIPELINE - 1:
        out |= {"decoder.final_layernorm.weight": (HIDDEN,), "output_layer.weight": (VOCABULARY // TENSOR, HIDDEN)}
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--gib", type=float, default=4)
    options = parser.parse_args()
    run = genuine()
    one = sum(torch.Size(shape).numel() for shape in shapes(1, 9).values()) * TENSOR
    outside = 2 * VOCABULARY * HIDDEN
    # Of a stage; a multiple of two, so that twice as many stages are possible.
    layers = 2 * max(1, round((options.gib * 2**30 / BYTES_PER_PARAMETER - outside) / one / PIPELINE / 2))
    sizes = {"num_layers": layers * PIPELINE, "encoder_num_layers": layers * PIPELINE, "hidden_size": HIDDEN, "ffn_hidden_size": FFN,
             "num_attention_heads": HEADS, "num_query_groups": GROUPS, "kv_channels": CHANNELS, "vocab_size": VOCABULARY - 1,  # NullTokenizer adds one
             "padded_vocab_size": VOCABULARY, "tensor_model_parallel_size": TENSOR, "pipeline_model_parallel_size": PIPELINE,
             "data_parallel_size": 1, "world_size": TENSOR * PIPELINE}
    arguments = {key: value.name if isinstance(value, enum.Enum) else value for key, value in vars(run["args"]).items()}
    run["args"] = argparse.Namespace(**(arguments | sizes))
    base = run["optimizer"]["optimizer"]["param_groups"]
    generator = torch.Generator().manual_seed(1)
    norms = {}  # the same on every tensor-parallel rank
    for stage in range(PIPELINE):
        for rank in range(TENSOR):
            model, state, masters, groups = {}, {}, [[], []], [dict(base[0], params=[]), dict(base[1], params=[])]
            named = {0: [], 1: []}
            for name, shape in shapes(layers, stage).items():
                named[int(len(shape) == 1)].append((name, shape))
            values = {}
            for group, members in named.items():
                for name, shape in members:
                    made = norms.get((stage, name)) or tuple(torch.randn(shape, generator=generator) for _ in range(3))
                    if group == 1:
                        norms[stage, name] = made
                    masters[group].append(made[0])
                    groups[group]["params"].append(len(state))
                    state[len(state)] = {"step": torch.tensor(2.0), "exp_avg": made[1], "exp_avg_sq": made[2].square()}
                    values[name] = made[0].bfloat16()
            for name in shapes(layers, stage):
                model[name] = values[name]
                if len(values[name].shape) > 1 and "embedding" not in name:
                    model[name.removesuffix("weight") + "_extra_state"] = None
            run["model"] = model
            run["optimizer"] = {"optimizer": {"state": state, "param_groups": groups}, "fp32_from_fp16_params": masters}
            folder = options.out / "iter_0000002" / f"mp_rank_{rank:02}_{stage:03}"
            folder.mkdir(parents=True)
            torch.save(run, folder / "model_optim_rng.pt")
    (options.out / "latest_checkpointed_iteration.txt").write_text("2")


main()
