#pragma once

#include "convert/write_request.hpp"
#include "format/model/training_state.hpp"

namespace ckpt::deepspeed {

/// torch's optimizers keep numbers besides the step as tensors without dimensions, one per parameter (NAdam's mu_product,
/// ASGD's eta and mu). Flat tensors have no place for them, but each group has one value of each: moves them from
/// `slots` to `values`.
///
/// A name is that of a number if any parameter with dimensions has none there. Of parameters without dimensions alone,
/// numbers and moments cannot be distinguished; they stay slots.
void read_number_slots(const WriteRequest& request, TrainingState& state);

}  // namespace ckpt::deepspeed
