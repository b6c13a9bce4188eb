family deepseek_v3
summary DeepSeek V3 and R1, without multi-token prediction
architecture DeepseekV3ForCausalLM
model_type deepseek_v3
include deepseek
config norm_topk_prob := true
config n_group = moe_router_num_groups
config topk_group = moe_router_group_topk
args moe_router_score_function := "sigmoid"
args moe_router_enable_expert_bias := true
scope decoder.layers.{l} = model.layers.{l}
tensor .mlp.router.expert_bias [num_experts] = .mlp.gate.e_score_correction_bias when moe
