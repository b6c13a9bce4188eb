family deepseek_v3
summary DeepSeek V3 and R1
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
config num_nextn_predict_layers = mtp_num_layers
scope mtp.layers.{l} = model.layers.{l}
tensor .enorm.weight [h] = .enorm.weight
tensor .hnorm.weight [h] = .hnorm.weight
tensor .eh_proj.weight [h, 2h] = .eh_proj.weight
tensor .final_layernorm.weight [h] = .shared_head.norm.weight
copy .embed_tokens.weight = model.embed_tokens.weight
copy .shared_head.head.weight = lm_head.weight
