#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt::megatron {

inline constexpr std::string_view kLayers = "decoder.layers.";  ///< before the number of a layer
inline constexpr std::string_view kEmbedding = "embedding.word_embeddings.weight";
inline constexpr std::string_view kOutput = "output_layer.weight";

/// Before the number of a multi-token prediction layer, and in it before the names of a layer of the decoder.
inline constexpr std::string_view kPredictionLayers = "mtp.layers.";
inline constexpr std::string_view kPredictedLayer = "transformer_layer.";

/// How tensor-parallel ranks divide a weight.
enum class Cut : std::uint8_t {
  none,     ///< every rank has all of it
  columns,  ///< equal parts of dimension 0
  rows,     ///< equal parts of dimension 1
  unknown
};

/// A weight by its name in the file of one rank.
struct Weight {
  std::string name;                       ///< in a torch_dist checkpoint, without the numbers of layer and expert
  std::optional<std::uint64_t> layer{};   ///< in its stage, from 0
  std::optional<std::uint64_t> expert{};  ///< of this expert-parallel rank, from 0
  Cut cut = Cut::none;
  bool is_gated = false;  ///< the columns are two halves, gate and up, each divided, where the model has gated units
};

/// name       in the state dict of a model chunk: "decoder.layers.0.mlp.linear_fc1.weight"
/// is_local   layers have norms of their own (the local spec), which torch_dist names like those of Transformer Engine
/// source     megatron/core/models/gpt/gpt_layer_specs.py (sharded_state_dict_keys_map), tensor_parallel/layers.py,
///            transformer/mlp.py, transformer/moe/experts.py
Weight weight_of(std::string_view name, bool is_local);

/// What the last of several pipeline stages has of the embedding, which the first one has, too; "": nothing.
///
/// is_tied         the output layer is the embedding
/// has_prediction  there are multi-token prediction layers, which have an embedding of their own. All are on the last stage
/// source          megatron/core/models/common/language_module: setup_embeddings_and_output_layer
std::string_view copied_embedding(bool is_tied, bool has_prediction);

/// Whether the rows of a first linear layer are those of the other kind: twice its inner size without gated units, or
/// once with them. Other numbers of rows contradict nothing: sizes may differ by layer.
bool contradicts_gate(std::uint64_t rows, std::uint64_t inner, bool is_gated);

}  // namespace ckpt::megatron
