family qwen3_moe
summary Qwen3-MoE
architecture Qwen3MoeForCausalLM
model_type qwen3_moe
include base
include rms
include attention
include gated
include qwen3
include moe
config num_local_experts|num_experts = num_experts
config num_experts_per_tok = moe_router_topk
config moe_intermediate_size = moe_ffn_hidden_size
config decoder_sparse_step = sparse_step(moe_layer_freq) else 1
config norm_topk_prob = not moe_router_pre_softmax else false
args moe_router_score_function := "softmax"
args moe_router_enable_expert_bias := false
args moe_shared_expert_intermediate_size := null
