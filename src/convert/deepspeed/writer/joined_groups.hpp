#pragma once

#include <set>
#include <string>
#include <vector>

#include "format/model/model.hpp"

namespace ckpt::deepspeed {

/// Where ranks train different parameters (stages of a pipeline; experts without ZeRO), each rank's groups list its own:
/// "optimizer.param_groups@RANK" and "optimizer.group_state@RANK" of all ranks become one object each, whose groups have
/// all members and the options of the first rank. Other objects stay. A group is joined with that of equal options: groups
/// of experts are in the order of a Python set of strings, which differs between ranks.
///
/// differing  gets the keys whose values differ between ranks (Prodigy's estimate `d`, of each rank's own partition)
std::vector<NamedObject> joined_groups(const std::vector<NamedObject>& objects, std::set<std::string>& differing);

}  // namespace ckpt::deepspeed
