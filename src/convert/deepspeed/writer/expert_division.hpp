#pragma once

#include "convert/deepspeed/writer/training_target.hpp"

namespace ckpt::deepspeed {

/// Finds the experts of a target, whose groups are there, as the source divides them. A target without experts stays as
/// it is.
///
/// errors  usage: --ep without experts; unsupported: experts that DeepSpeed cannot hold, with the layer
Result<> find_experts(const WriteRequest& request, bool universal, TrainingTarget& target);

/// Gives experts the expert-parallel ranks that are asked for, or the source's.
///
/// errors  unsupported: experts that those ranks cannot hold, with the layer and the nearest number that works
Result<> divide_experts(const WriteRequest& request, TrainingTarget& target);

}  // namespace ckpt::deepspeed
