family qwen2_moe
summary Qwen1.5-MoE and Qwen2-MoE, with a shared expert
architecture Qwen2MoeForCausalLM
model_type qwen2_moe
include base
include rms
include attention
include gated
include qwen2
include moe
config num_local_experts|num_experts = num_experts
config num_experts_per_tok = moe_router_topk
config moe_intermediate_size = moe_ffn_hidden_size
config decoder_sparse_step = sparse_step(moe_layer_freq) else 1
config norm_topk_prob = not moe_router_pre_softmax else false
args moe_router_score_function := "softmax"
args moe_router_enable_expert_bias := false
config shared_expert_intermediate_size = moe_shared_expert_intermediate_size
args moe_shared_expert_gate := true
scope decoder.layers.{l} = model.layers.{l}
tensor .mlp.shared_experts.linear_fc1.weight [2 moe_shared_expert_intermediate_size, h] = glu(.mlp.shared_expert.gate_proj.weight, .mlp.shared_expert.up_proj.weight) when moe
tensor .mlp.shared_experts.linear_fc2.weight [h, moe_shared_expert_intermediate_size] = .mlp.shared_expert.down_proj.weight when moe
tensor .mlp.shared_experts.gate_weight [1, h] = .mlp.shared_expert_gate.weight when moe
