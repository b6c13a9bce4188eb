#pragma once

#include "convert/deepspeed/writer/training_target.hpp"

namespace ckpt::deepspeed {

/// Finds the experts of a target, whose groups are there, and gives them the expert-parallel ranks that are asked for,
/// or the source's. A target without experts stays as it is.
///
/// errors  usage: --ep without experts; unsupported: experts that DeepSpeed or those ranks cannot hold, with the layer
///         and the nearest number that works
Result<> divide_experts(const WriteRequest& request, bool universal, TrainingTarget& target);

}  // namespace ckpt::deepspeed
