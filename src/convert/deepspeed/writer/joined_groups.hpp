#pragma once

#include <vector>

#include "format/model/model.hpp"

namespace ckpt::deepspeed {

/// Where ranks train different parameters (stages of a pipeline; experts without ZeRO), each rank's groups list its own:
/// "optimizer.param_groups@RANK" and "optimizer.group_state@RANK" of all ranks become one object each, whose groups have
/// all members and the options of the first rank. Other objects stay.
std::vector<NamedObject> joined_groups(const std::vector<NamedObject>& objects);

}  // namespace ckpt::deepspeed
