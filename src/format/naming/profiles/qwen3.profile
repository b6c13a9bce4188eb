family qwen3
summary Qwen3, dense
architecture Qwen3ForCausalLM
model_type qwen3
include base
include rms
include attention
include gated
include qwen3
args num_experts := null
