family nemotron
summary Nemotron and Minitron: squared ReLU, LayerNorm around 1
architecture NemotronForCausalLM
model_type nemotron
include base
include attention
config intermediate_size = ffn_hidden_size
config norm_eps = layernorm_epsilon|norm_epsilon else 1e-05
config rope_parameters.partial_rotary_factor|partial_rotary_factor = rotary_percent else 0.5
config hidden_act := "relu2"
config attention_bias := false
config mlp_bias := false
args normalization := "LayerNorm"
args layernorm_zero_centered_gamma := true
args squared_relu := true
args swiglu := false
args add_qkv_bias := false
args qk_layernorm := false
args num_experts := null
tensor decoder.final_layernorm.bias [h] = model.norm.bias
scope decoder.layers.{l} = model.layers.{l}
tensor .self_attention.linear_qkv.layer_norm_bias | .input_layernorm.bias [h] = .input_layernorm.bias
tensor .mlp.linear_fc1.layer_norm_weight | .pre_mlp_layernorm.weight [h] = .post_attention_layernorm.weight
tensor .mlp.linear_fc1.layer_norm_bias | .pre_mlp_layernorm.bias [h] = .post_attention_layernorm.bias
tensor .mlp.linear_fc1.weight [f, h] = .mlp.up_proj.weight
tensor .mlp.linear_fc2.weight [h, f] = .mlp.down_proj.weight
