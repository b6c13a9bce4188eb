#pragma once

#include <string>
#include <vector>

#include "format/model/box.hpp"
#include "format/result.hpp"

namespace ckpt::megatron {

/// A weight of a target.
struct NamedWeight {
  std::string name;
  Shape shape;
};

/// The keys of the empty extra states that megatron-core expects of the modules of these weights: without them it does not
/// load a checkpoint, while those of modules that it does not have do no harm. Stacked layers and experts have one each.
/// Transformer Engine stores there what FP8 needs, and nothing otherwise.
///
/// errors  unsupported: over a million of them
/// source  megatron/core/transformer/utils.py: make_sharded_tensors_for_checkpoint, _get_extra_state_offsets;
///         mapping.py: ShardedObject.unique_key
Result<std::vector<std::string>> extra_state_keys(const std::vector<NamedWeight>& weights);

}  // namespace ckpt::megatron
