family qwen2
summary Qwen2 and Qwen2.5, dense
architecture Qwen2ForCausalLM
model_type qwen2
include base
include rms
include attention
include gated
include qwen2
args num_experts := null
