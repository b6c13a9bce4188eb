#pragma once

#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt::megatron {

/// Gives the state that megatron-core before 0.15 stored flattened (fully_sharded_model_space) the shapes of its weights.
/// A run that cut a weight of shape G into F parts along each dimension stored its state as F + [volume(G / F)]: the
/// elements of each part in a row, which data-parallel ranks divide. State of another form stays as it is.
///
/// So does that of GroupedMLP's experts, with a note: it is that of transposed weights, and belongs to none.
///
/// is_whole  flattened state has the shapes of its weights already, as the zarr back end stores it
/// source    megatron/core/dist_checkpointing/strategies/resharding.py (to 0.15):
///           apply_nd_flattened_tensors_reformulation; transformer/moe/experts.py: GroupedMLP.sharded_state_dict
Result<> unflatten_state(Map& map, bool is_whole);

}  // namespace ckpt::megatron
