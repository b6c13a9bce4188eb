family mistral
summary Mistral 7B, without a sliding window
architecture MistralForCausalLM
model_type mistral
include base
include rms
include attention
include gated
config sliding_window := null
args add_qkv_bias := false
args qk_layernorm := false
args num_experts := null
args window_size := null
