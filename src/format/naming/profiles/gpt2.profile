family gpt2
summary GPT-2 and what is built like it; its matrices are transposed
architecture GPT2LMHeadModel
model_type gpt2
prefix transformer.
config n_embd = hidden_size
config n_layer = num_layers
config n_head = num_attention_heads|num_query_groups
config n_positions = max_position_embeddings
config n_inner = ffn_hidden_size else 4h
config vocab_size = vocab_size
config layer_norm_epsilon = layernorm_epsilon|norm_epsilon else 1e-05
config initializer_range = init_method_std else 0.02
config attn_pdrop = attention_dropout else 0.1
config resid_pdrop = hidden_dropout else 0.1
config activation_function := "gelu_new"
config tie_word_embeddings := true
derive kv_channels = h / n
args position_embedding_type := "learned_absolute"
args normalization := "LayerNorm"
args layernorm_zero_centered_gamma := false
args add_bias_linear := true
args swiglu := false
args squared_relu := false
args openai_gelu := true
args qk_layernorm := false
args untie_embeddings_and_output_weights := false
args num_experts := null
args apply_residual_connection_post_layernorm := false
tensor embedding.word_embeddings.weight [V, h] = vocab(transformer.wte.weight)
tensor embedding.position_embeddings.weight [max_position_embeddings, h] = transformer.wpe.weight
tensor decoder.final_layernorm.weight [h] = transformer.ln_f.weight
tensor decoder.final_layernorm.bias [h] = transformer.ln_f.bias
scope decoder.layers.{l} = transformer.h.{l}
tensor .self_attention.linear_qkv.layer_norm_weight | .input_layernorm.weight [h] = .ln_1.weight
tensor .self_attention.linear_qkv.layer_norm_bias | .input_layernorm.bias [h] = .ln_1.bias
tensor .self_attention.linear_qkv.weight [(n + 2g) d, h] = fused(t(.attn.c_attn.weight))
tensor .self_attention.linear_qkv.bias [(n + 2g) d] = fused(.attn.c_attn.bias)
tensor .self_attention.linear_proj.weight [h, n d] = t(.attn.c_proj.weight)
tensor .self_attention.linear_proj.bias [h] = .attn.c_proj.bias
tensor .mlp.linear_fc1.layer_norm_weight | .pre_mlp_layernorm.weight [h] = .ln_2.weight
tensor .mlp.linear_fc1.layer_norm_bias | .pre_mlp_layernorm.bias [h] = .ln_2.bias
tensor .mlp.linear_fc1.weight [f, h] = t(.mlp.c_fc.weight)
tensor .mlp.linear_fc1.bias [f] = .mlp.c_fc.bias
tensor .mlp.linear_fc2.weight [h, f] = t(.mlp.c_proj.weight)
tensor .mlp.linear_fc2.bias [h] = .mlp.c_proj.bias
ignore lm_head.weight  # tied to the embedding
ignore *.attn.bias
ignore *.attn.masked_bias
