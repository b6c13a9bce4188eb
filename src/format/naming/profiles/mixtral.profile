family mixtral
summary Mixtral 8x7B and 8x22B
architecture MixtralForCausalLM
model_type mixtral
include base
include rms
include attention
config sliding_window := null
config intermediate_size = moe_ffn_hidden_size|ffn_hidden_size
config num_local_experts = num_experts
config num_experts_per_tok = moe_router_topk
args add_qkv_bias := false
args qk_layernorm := false
args moe_router_score_function := "softmax"
args moe_router_pre_softmax := false
args moe_router_enable_expert_bias := false
args moe_shared_expert_intermediate_size := null
scope decoder.layers.{l} = model.layers.{l}
tensor .pre_mlp_layernorm.weight | .mlp.linear_fc1.layer_norm_weight [h] = .post_attention_layernorm.weight when num_experts
tensor .mlp.router.weight [num_experts, h] = .block_sparse_moe.gate.weight
tensor .mlp.experts.{e}.linear_fc1.weight [2 moe_ffn_hidden_size, h] = glu(.block_sparse_moe.experts.{e}.w1.weight, .block_sparse_moe.experts.{e}.w3.weight)
tensor .mlp.experts.{e}.linear_fc2.weight [h, moe_ffn_hidden_size] = .block_sparse_moe.experts.{e}.w2.weight
