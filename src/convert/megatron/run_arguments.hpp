#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "format/model/model.hpp"
#include "format/model/value.hpp"

namespace ckpt::megatron {

/// Fills step, world size and mesh from the state that all ranks of a run have in common.
///
/// common  a dict with `iteration` and `args`, an argparse.Namespace; anything else is left out
/// source  megatron/training/checkpointing.py: generate_state_dict
void read_run_arguments(const Value& common, Meta& meta);

/// The value of a text key of a dict, or of an object whose state is a dict; null if there is none.
const Value* member(const Value& value, std::string_view key);
/// An argument that counts something; nothing if it is not set, or not positive.
std::optional<std::uint64_t> count_argument(const Value& args, std::string_view name);
/// A switch among the arguments: whether it is on.
bool is_set(const Value& args, std::string_view name);

/// Whether the first linear layers have two halves, gate and up.
/// source  megatron/training/arguments.py: core_transformer_config_from_args
bool has_gated_layers(const Value& args);
/// Whether experts are GroupedMLP, which multiplies by transposed weights of all experts of a rank (`weight1`,
/// `weight2`). Weights in torch_dist are those of the other modules, but not the state that the distributed optimizer
/// stores in buckets or flattened.
/// source  megatron/core/models/backends.py: grouped_mlp_modules; transformer/moe/experts.py
bool has_transposed_experts(const Value& args);
/// Whether torch_dist has each layer's weights under the layer's number, also if all layers are alike.
/// source  megatron/core/transformer/transformer_block.py: TransformerBlock.sharded_state_dict; ssm/mamba_block.py
bool has_numbered_layers(const Value& args);

}  // namespace ckpt::megatron
