#pragma once

#include <vector>

#include "format/model/model.hpp"

namespace ckpt {

/// Unexpected facts about the contents of a checkpoint, for any format: frozen parameters, optimizer state on rounded
/// weights, missing masters or moments, weights alone. Notes, in a fixed order, each naming at most three tensors.
/// Pure.
std::vector<Finding> traps(const Map& map);

}  // namespace ckpt
