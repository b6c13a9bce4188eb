#pragma once

#include "format/model/model.hpp"
#include "format/model/value.hpp"

namespace ckpt::megatron {

/// The leaves of a value become objects of the map, as those of a file are.
///
/// path  of the value, from the root
void add_objects(const Path& path, const ValuePtr& value, Map& map);

}  // namespace ckpt::megatron
