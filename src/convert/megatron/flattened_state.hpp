#pragma once

#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt::megatron {

/// Gives the state that megatron-core before 0.15 stored flattened (fully_sharded_model_space) the shapes of its weights.
/// A run that cut a weight of shape G into F parts along each dimension stored its state as F + [volume(G / F)]: the
/// elements of each part in a row, which data-parallel ranks divide. State of another form stays as it is.
///
/// source  megatron/core/dist_checkpointing/strategies/resharding.py (to 0.15):
///         apply_nd_flattened_tensors_reformulation
Result<> unflatten_state(Map& map);

}  // namespace ckpt::megatron
