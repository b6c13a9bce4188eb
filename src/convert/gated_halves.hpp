#pragma once

#include "format/model/model.hpp"

namespace ckpt {

/// Joins the gate and up halves that some runs of Megatron-LM store apart (linear_fc1.weight_w, linear_fc1.weight_v) to
/// one weight, and their state likewise. Halves that do not fit each other stay.
///
/// source  megatron/core/transformer/mlp.py: apply_swiglu_sharded_factory with singleton_local_shards
void join_gated_halves(Map& map);

}  // namespace ckpt
