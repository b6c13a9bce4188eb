family llama
summary Llama and what is built like it: Yi, SmolLM, Vicuna
architecture LlamaForCausalLM
model_type llama
include base
include rms
include attention
include gated
config attention_bias := false
config mlp_bias := false
args add_qkv_bias := false
args qk_layernorm := false
args num_experts := null
args window_size := null
