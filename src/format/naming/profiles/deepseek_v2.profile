family deepseek_v2
summary DeepSeek V2 and V2 Lite
architecture DeepseekV2ForCausalLM
model_type deepseek_v2
include deepseek
config norm_topk_prob = not moe_router_pre_softmax else false
config topk_method := "greedy"
args moe_router_num_groups := null
args mtp_num_layers := null
args moe_router_score_function := "softmax"
args moe_router_enable_expert_bias := false
