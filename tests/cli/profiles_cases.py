"""--names: tensors under the names of another framework."""
import json
import os

from runner import check, main
from torch_file import Tensor, save

RUN = "megatron/torch_dist_tp2_pp2_dp2"


def names(sh, path):
    return set(sh.run("ls", "-q", path).out.splitlines())


def case_a_run_of_megatron_gets_the_names_of_transformers(sh):
    run = sh.checkpoint(RUN)
    got = sh.run("convert", run, "hf", "--to", "safetensors", "--names", "hf", "--only", "weights")
    check("profile llama" in got.out and "rows 100 to 111" in got.out, got.out)
    check("model.layers.3.self_attn.k_proj.weight" in names(sh, "hf"), "no such tensor")
    with open(sh.path("hf/config.json"), encoding="utf-8") as file:
        config = json.load(file)
    check(config["model_type"] == "llama" and config["num_key_value_heads"] == 2 and config["vocab_size"] == 100, config)
    sh.run("convert", run, "hf", "--to", "safetensors", "--names", "hf", "--only", "weights", out="already")
    # Another choice of names is another conversion.
    sh.run("convert", run, "hf", "--to", "safetensors", "--names", "hf:mistral", "--only", "weights", code=2)
    sh.run("convert", run, "hf", "--to", "safetensors", "--names", "hf", "--vocab-size", "99", "--only", "weights", code=2)


def case_the_names_are_verified_against_the_run(sh):
    run = sh.checkpoint(RUN)
    got = sh.run("convert", run, "hf", "--to", "safetensors", "--names", "hf")
    proposed = got.out.splitlines()[-1].removeprefix("next: ckpt ")
    check(proposed == f"diff hf {run} --names hf", proposed)
    sh.run(*proposed.split(), out="156 identical, 0 different, 0 only here, 0 only there")
    listed = sh.run("ls", run, "--names", "hf", "-q").out
    check(set(listed.splitlines()) >= names(sh, "hf"), listed)
    again = sh.run("convert", "hf", "m", "--to", "safetensors", "--names", "megatron", "--vocab-multiple", "64")
    check("inspect" in again.out.splitlines()[-1], again.out)


def case_names_go_there_and_back_through_the_universal_format(sh):
    run = sh.checkpoint(RUN)
    for name, source, to in (("u", run, "hf"), ("m", "u", "megatron"), ("h", "m", "hf")):
        sh.run("convert", source, name, "--names", to, "--allow-skipped")
    check("decoder.layers.self_attention.linear_qkv.weight" in names(sh, "m"), "not stacked")
    sh.run("verify", "h", "--against", "u")


def case_what_does_not_fit_is_refused_before_anything_is_written(sh):
    run = sh.checkpoint(RUN)
    to = ("convert", run, "out", "--names")
    sh.run(*to, "hff", code=2, err="is not hf, megatron")
    sh.run(*to, "hf:lama", code=2, err=r"did you mean llama\?")
    sh.run(*to, "hf:qwen3", code=12, err="q_layernorm")
    sh.run(*to, "hf", "--vocab-size", "113", code=15, err=r"\[112, 32\]")
    sh.run("convert", run, "out", "--vocab-size", "99", code=2, err="--vocab-size needs --names")
    sh.run("convert", sh.checkpoint("megatron/legacy_moe_ep2_pp2_dp2"), "out", "--names", "hf", code=2, err="nearest is")
    save({"w": Tensor([1.0, 2.0])}, sh.path("w.pt"))
    sh.run("convert", "w.pt", "out", "--names", "hf", code=2, err="--assets DIR")
    check(not os.path.exists(sh.path("out")), "something was written")


def case_help_lists_the_profiles(sh):
    text = sh.run("help", "profiles").out
    for family in ("llama", "qwen3_moe", "deepseek_v3", "gpt2"):
        check(family in text, f"no {family}")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
