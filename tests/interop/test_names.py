"""Naming profiles: runs of Megatron-LM for transformers, and models of transformers under Megatron-LM's names."""
import json

import pytest

from conftest import GOLDEN

MEGATRON = GOLDEN / "megatron"
IDS = [[1, 5, 3, 2, 9, 14, 77, 98]]
HEADS, GROUPS, HEAD, LAYERS, VOCAB = 4, 2, 8, 4, 100  # the tokenizer of the runs adds one to their vocab_size


def truth_of(case, role="param"):
    """The arrays of a case by Megatron-LM's names, in fp32."""
    import torch
    from safetensors.torch import load_file
    out = load_file(MEGATRON / case / "truth.safetensors")
    return {k.split("/", 1)[1]: v.to(torch.float64) for k, v in out.items() if k.startswith(role + "/")}


def norm(x, weight, eps=1e-5):
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def rotated(x):
    """x: [heads, positions, head]; halves are rotated, as in Megatron-LM without rotary_interleaved."""
    import torch
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] / 10000 ** (torch.arange(half, dtype=x.dtype) * 2 / x.shape[-1])
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def megatron_logits(weights):
    """A forward pass written down from Megatron-LM's layout: groups of queries with their key and value."""
    import torch
    x = weights["embedding.word_embeddings.weight"][torch.tensor(IDS[0])]
    positions = x.shape[0]
    mask = torch.full((positions, positions), float("-inf"), dtype=x.dtype).triu(1)
    at = lambda name, layer: weights["decoder.layers." + name][layer]
    for layer in range(LAYERS):
        h = norm(x, at("self_attention.linear_qkv.layer_norm_weight", layer))
        qkv = (h @ at("self_attention.linear_qkv.weight", layer).T).view(positions, GROUPS, HEADS // GROUPS + 2, HEAD)
        q = qkv[:, :, :-2].reshape(positions, HEADS, HEAD).transpose(0, 1)
        k = qkv[:, :, -2].transpose(0, 1).repeat_interleave(HEADS // GROUPS, 0)
        v = qkv[:, :, -1].transpose(0, 1).repeat_interleave(HEADS // GROUPS, 0)
        scores = rotated(q) @ rotated(k).transpose(1, 2) / HEAD ** 0.5 + mask
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(positions, -1)
        x = x + mixed @ at("self_attention.linear_proj.weight", layer).T
        h = norm(x, at("mlp.linear_fc1.layer_norm_weight", layer))
        gate, up = (h @ at("mlp.linear_fc1.weight", layer).T).chunk(2, -1)
        x = x + (torch.nn.functional.silu(gate) * up) @ at("mlp.linear_fc2.weight", layer).T
    x = norm(x, weights["decoder.final_layernorm.weight"])
    return x @ weights["output_layer.weight"][:VOCAB].T


@pytest.mark.parametrize("case", ["torch_dist_tp2_pp2_dp2", "legacy_tp2_pp2", "legacy_tp2_pp2_dp2_distopt"])
def test_a_run_of_megatron_loads_in_transformers_with_its_logits(case, ckpt, out):
    import torch
    import transformers
    ckpt("convert", MEGATRON / case / "ckpt", out / "hf", "--to", "safetensors", "--names", "hf", "--only", "weights",
         "--weights", "param")
    model, info = transformers.AutoModelForCausalLM.from_pretrained(out / "hf", dtype=torch.float64, output_loading_info=True)
    assert isinstance(model, transformers.LlamaForCausalLM)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    with torch.no_grad():
        ours = model.eval()(torch.tensor(IDS)).logits[0].double()
    expected = megatron_logits(truth_of(case))
    assert (ours - expected).abs().max() <= 1e-6 * expected.abs().max()


def split_qkv(fused):
    """[layers, (heads + 2 groups) head, ...] -> q, k, v of one layer each."""
    grouped = fused.reshape(GROUPS, HEADS // GROUPS + 2, HEAD, -1)
    q, k, v = grouped[:, :-2], grouped[:, -2], grouped[:, -1]
    return [x.reshape(-1, fused.shape[-1]) for x in (q, k, v)]


def test_masters_and_moments_are_cut_as_their_weights(ckpt, out):
    from safetensors.torch import load_file
    case = "torch_dist_tp2_pp2_dp2"
    ckpt("convert", MEGATRON / case / "ckpt", out / "hf", "--to", "safetensors", "--names", "hf", "--only", "optim")
    made = {}
    for path in (out / "hf").glob("*.safetensors"):
        made.update(load_file(path))
    for slot in ("master", "exp_avg", "exp_avg_sq"):
        truth = truth_of(case, slot)
        for layer in range(LAYERS):
            fused = truth["decoder.layers.self_attention.linear_qkv.weight"][layer]
            for name, part in zip("qkv", split_qkv(fused)):
                got = made[f"optimizer.state.model.layers.{layer}.self_attn.{name}_proj.weight.{slot}"]
                assert (got.double() == part).all()
            gate, up = truth["decoder.layers.mlp.linear_fc1.weight"][layer].chunk(2)
            assert (made[f"optimizer.state.model.layers.{layer}.mlp.gate_proj.weight.{slot}"].double() == gate).all()
            assert (made[f"optimizer.state.model.layers.{layer}.mlp.up_proj.weight.{slot}"].double() == up).all()
        embedding = truth["embedding.word_embeddings.weight"]
        assert (made[f"optimizer.state.model.embed_tokens.weight.{slot}"].double() == embedding[:VOCAB]).all()


def config_of(family, **more):
    import transformers
    small = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                 vocab_size=101, max_position_embeddings=64)
    moe = dict(moe_intermediate_size=24, num_experts=4, num_experts_per_tok=2)
    mla = dict(q_lora_rank=12, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8, n_routed_experts=4,
               num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=16, first_k_dense_replace=1, n_group=2,
               topk_group=1, num_key_value_heads=4)
    kinds = {
        "llama": (transformers.LlamaConfig, {}),
        "mistral": (transformers.MistralConfig, {"sliding_window": None}),
        "qwen2": (transformers.Qwen2Config, {"tie_word_embeddings": True}),
        "qwen3": (transformers.Qwen3Config, {"head_dim": 16}),
        "gpt2": (transformers.GPT2Config, None),
        "mixtral": (transformers.MixtralConfig, {"num_local_experts": 4}),
        "qwen2_moe": (transformers.Qwen2MoeConfig, {**moe, "shared_expert_intermediate_size": 40}),
        "qwen3_moe": (transformers.Qwen3MoeConfig, {**moe, "head_dim": 8}),
        "deepseek_v2": (transformers.DeepseekV2Config, mla),
        "deepseek_v3": (transformers.DeepseekV3Config, mla),
        "nemotron": (transformers.NemotronConfig, {"head_dim": 8}),
    }
    make, own = kinds[family]
    if own is None:
        return make(n_embd=32, n_layer=3, n_head=4, vocab_size=101, n_positions=64)
    return make(**{**small, **own, **more})


def families():
    profiles = GOLDEN.parents[1] / "src" / "format" / "naming" / "profiles"
    return sorted(path.stem for path in profiles.glob("*.profile"))


def tensors_in(folder):
    from safetensors import safe_open
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            out.update({name: file.get_tensor(name) for name in file.keys()})
    return out


@pytest.mark.parametrize("family", families())
def test_a_model_of_transformers_comes_back_bit_for_bit(family, ckpt, out):
    import torch
    import transformers
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config_of(family)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # no two values are equal, norms and biases too
            parameter.copy_(torch.randn_like(parameter) * 0.1)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn_like(buffer) * 0.1)
    model.save_pretrained(out / "source")
    ckpt("convert", out / "source", out / "megatron", "--to", "safetensors", "--names", "megatron", "--vocab-multiple", "16")
    ckpt("convert", out / "megatron", out / "back", "--to", "safetensors", "--names", "hf")
    before, after = tensors_in(out / "source"), tensors_in(out / "back")
    assert before.keys() == after.keys()
    for name in before:
        assert before[name].dtype == after[name].dtype and torch.equal(before[name], after[name]), name
    between = tensors_in(out / "megatron")
    assert between["embedding.word_embeddings.weight"].shape[0] == 112
    # Through a format that keeps the arguments, config.json is made from them.
    ckpt("convert", out / "source", out / "u", "--names", "megatron", "--no-extras")
    ckpt("convert", out / "u", out / "made", "--to", "safetensors", "--names", f"hf:{family}", "--only", "weights")
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(out / "made", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    ids = torch.tensor(IDS)
    with torch.no_grad():
        assert torch.equal(loaded.eval()(ids).logits, model(ids).logits)


def test_multi_token_prediction_layers_go_both_ways(ckpt, out):
    """DeepSeek V3 has them as layers behind the last one; transformers leaves them out of what it saves, but not out of config.json."""
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    torch.manual_seed(5)
    transformers.AutoModelForCausalLM.from_config(config_of("deepseek_v3")).save_pretrained(out / "s")
    config = json.loads((out / "s" / "config.json").read_text()) | {"num_nextn_predict_layers": 2}
    (out / "s" / "config.json").write_text(json.dumps(config))
    notes = ckpt("convert", out / "s", out / "without", "--names", "megatron").stdout
    assert "no tensors for 2 multi-token prediction layers" in notes, notes

    tensors = load_file(out / "s" / "model.safetensors")
    last = {name.removeprefix("model.layers.2."): tensor for name, tensor in tensors.items() if name.startswith("model.layers.2.")}
    for layer in ("model.layers.3.", "model.layers.4."):
        more = {name: torch.randn_like(tensor) for name, tensor in last.items()}
        more |= {"enorm.weight": torch.randn(32), "hnorm.weight": torch.randn(32), "eh_proj.weight": torch.randn(32, 64),
                 "shared_head.norm.weight": torch.randn(32), "embed_tokens.weight": tensors["model.embed_tokens.weight"].clone(),
                 "shared_head.head.weight": tensors["lm_head.weight"].clone()}
        tensors |= {layer + name: tensor for name, tensor in more.items()}
    save_file(tensors, out / "s" / "model.safetensors", metadata={"format": "pt"})
    notes = ckpt("convert", out / "s", out / "m", "--to", "safetensors", "--names", "megatron", "--vocab-multiple", "16").stdout
    assert "skipped tensors" in notes and "model.layers.3.embed_tokens.weight" in notes, notes
    made = tensors_in(out / "m")
    layer = "mtp.layers.1.transformer_layer."
    gated = [tensors[f"model.layers.4.mlp.experts.2.{name}_proj.weight"] for name in ("gate", "up")]
    assert torch.equal(made[layer + "mlp.experts.experts.linear_fc1.weight"][2], torch.cat(gated))
    assert torch.equal(made["mtp.layers.1.eh_proj.weight"], tensors["model.layers.4.eh_proj.weight"])
    ckpt("convert", out / "m", out / "back", "--to", "safetensors", "--names", "hf")
    back = tensors_in(out / "back")
    assert back.keys() == tensors.keys() and all(torch.equal(back[name], tensors[name]) for name in back)
    # Through a format that keeps the arguments, config.json is made from them.
    ckpt("convert", out / "s", out / "u", "--names", "megatron", "--no-extras")
    ckpt("convert", out / "u", out / "made", "--to", "safetensors", "--names", "hf:deepseek_v3", "--only", "weights")
    assert json.loads((out / "made" / "config.json").read_text())["num_nextn_predict_layers"] == 2
    assert tensors_in(out / "made").keys() == tensors.keys()


def test_megatron_layout_of_a_llama(ckpt, out):
    """The stacked tensors are what numpy makes of those of transformers."""
    import torch
    import transformers
    torch.manual_seed(3)
    transformers.LlamaForCausalLM(config_of("llama")).save_pretrained(out / "source")
    ckpt("convert", out / "source", out / "m", "--to", "safetensors", "--names", "megatron")
    hf, made = tensors_in(out / "source"), tensors_in(out / "m")
    for layer in range(3):
        q, k, v = (hf[f"model.layers.{layer}.self_attn.{x}_proj.weight"] for x in "qkv")
        fused = torch.cat([q.view(2, 2, 8, 32), k.view(2, 1, 8, 32), v.view(2, 1, 8, 32)], 1).reshape(-1, 32)
        assert torch.equal(made["decoder.layers.self_attention.linear_qkv.weight"][layer], fused)
        gated = torch.cat([hf[f"model.layers.{layer}.mlp.{x}_proj.weight"] for x in ("gate", "up")])
        assert torch.equal(made["decoder.layers.mlp.linear_fc1.weight"][layer], gated)
    assert torch.equal(made["output_layer.weight"], hf["lm_head.weight"])


@pytest.mark.parametrize("to", ["dcp", "ckpt"])
def test_other_targets_take_megatron_names(to, ckpt, out):
    import transformers
    transformers.LlamaForCausalLM(config_of("llama")).save_pretrained(out / "source")
    ckpt("convert", out / "source", out / "m", "--to", to, "--names", "megatron")
    listed = ckpt("ls", out / "m", "-q").stdout.split()
    assert "decoder.layers.self_attention.linear_qkv.weight" in listed


def test_what_does_not_fit_is_refused_by_name(ckpt, out):
    import transformers
    from safetensors.torch import load_file, save_file
    transformers.LlamaForCausalLM(config_of("llama")).save_pretrained(out / "s")
    config = json.loads((out / "s" / "config.json").read_text())

    def refused(*words, expect=15):
        got = ckpt("convert", out / "s", out / "m", "--to", "safetensors", "--names", *words, expect=expect)
        assert not (out / "m").exists()
        return got.stderr

    (out / "s" / "config.json").write_text(json.dumps({**config, "num_key_value_heads": 1}))
    assert "k_proj.weight" in refused("megatron")
    (out / "s" / "config.json").write_text(json.dumps({**config, "num_key_value_heads": 3}))
    assert "3 does not divide 4" in refused("megatron")
    (out / "s" / "config.json").write_text(json.dumps(config))
    assert "llama" in refused("megatron:lama", expect=2)
    assert "not hf, megatron" in refused("mega", expect=2)
    tensors = load_file(out / "s" / "model.safetensors")
    tensors["model.layers.0.self_attn.qq_proj.weight"] = tensors.pop("model.layers.0.self_attn.q_proj.weight")
    save_file(tensors, out / "s" / "model.safetensors", metadata={"format": "pt"})
    text = refused("megatron", expect=12)
    assert "model.layers.0.self_attn.q_proj.weight" in text and "qq_proj" in text
    tensors["model.layers.0.self_attn.q_proj.weight"] = tensors["model.layers.0.self_attn.qq_proj.weight"].clone()
    save_file(tensors, out / "s" / "model.safetensors", metadata={"format": "pt"})
    assert "qq_proj" in refused("megatron", expect=12)


def test_the_output_layer_of_a_tied_model_is_left_out(ckpt, out):
    import transformers
    from safetensors.torch import load_file, save_file
    transformers.Qwen2ForCausalLM(config_of("qwen2")).save_pretrained(out / "s")
    tensors = load_file(out / "s" / "model.safetensors")
    assert "lm_head.weight" not in tensors
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, out / "s" / "model.safetensors", metadata={"format": "pt"})
    run = ckpt("convert", out / "s", out / "m", "--to", "safetensors", "--names", "megatron")
    assert "skipped tensors that are not model weights: lm_head.weight" in run.stdout
    assert "output_layer.weight" not in tensors_in(out / "m")


def test_a_profile_of_ones_own(ckpt, out):
    import torch
    from safetensors.torch import save_file
    (out / "s").mkdir()
    save_file({"tok.w": torch.arange(12.).reshape(4, 3), "blk.0.w": torch.ones(3, 3), "blk.1.w": torch.zeros(3, 3)},
              out / "s" / "model.safetensors", metadata={"format": "pt"})
    (out / "s" / "config.json").write_text(json.dumps({"model_type": "mine", "size": 3, "rows": 4, "depth": 2}))
    lines = ["family mine", "architecture Mine", "model_type mine", "config size = hidden_size", "config rows = vocab_size",
             "config depth = num_layers", "tensor embedding.word_embeddings.weight [V, h] = vocab(tok.w)",
             "tensor decoder.layers.{l}.w [h, h] = t(blk.{l}.w)"]
    (out / "mine.json").write_text(json.dumps({"ckpt-map": 1, "profile": lines}))
    ckpt("convert", out / "s", out / "m", "--to", "safetensors", "--names", "megatron:mine", "--map", out / "mine.json")
    made = tensors_in(out / "m")
    assert made["decoder.layers.w"].shape == (2, 3, 3) and made["embedding.word_embeddings.weight"].shape == (4, 3)
    (out / "mine.json").write_text(json.dumps({"ckpt-map": 1, "profile": lines[:-1] + ["tensor x [h] = y z"]}))
    run = ckpt("convert", out / "s", out / "n", "--to", "safetensors", "--names", "megatron:mine", "--map",
               out / "mine.json", expect=2)
    assert "line 8" in run.stderr


def test_the_optimizer_of_a_trainer_gets_megatron_names(ckpt, out):
    """Its state is numbered in the order of the model's parameters."""
    import torch
    import transformers
    source = GOLDEN / "folders" / "hf_trainer" / "ckpt"
    model = transformers.AutoModelForCausalLM.from_pretrained(source)
    order = [name for name, _ in model.named_parameters()]
    (out / "order.json").write_text(json.dumps({"ckpt-map": 1, "parameters": order}))
    ckpt("convert", source, out / "m", "--to", "safetensors", "--names", "megatron", "--map", out / "order.json")
    made = tensors_in(out / "m")
    saved = torch.load(source / "optimizer.pt", weights_only=True)
    # The Trainer's groups: with and without weight decay, each in the model's order.
    decayed = [name for name in order if not (name.endswith("bias") or "norm" in name)]
    numbers = {name: i for i, name in enumerate(decayed + [name for name in order if name not in decayed])}
    config = model.config
    groups, d = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    for slot in ("exp_avg", "exp_avg_sq"):
        of = lambda name: saved["state"][numbers[name]][slot]
        for layer in range(config.num_hidden_layers):
            q, k, v = (of(f"model.layers.{layer}.self_attn.{x}_proj.weight").reshape(groups, -1, d, config.hidden_size)
                       for x in "qkv")
            fused = torch.cat([q, k, v], 1).reshape(-1, config.hidden_size)
            assert torch.equal(made[f"optimizer.state.decoder.layers.self_attention.linear_qkv.weight.{slot}"][layer], fused)
            norm_state = of(f"model.layers.{layer}.post_attention_layernorm.weight")
            assert torch.equal(made[f"optimizer.state.decoder.layers.mlp.linear_fc1.layer_norm_weight.{slot}"][layer],
                               norm_state)
        assert torch.equal(made[f"optimizer.state.output_layer.weight.{slot}"], of("lm_head.weight"))
