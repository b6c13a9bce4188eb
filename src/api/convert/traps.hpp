#pragma once

#include <vector>

#include "format/model/model.hpp"

namespace ckpt {

/// What a user of a checkpoint would not expect of what it holds, whatever its format: frozen parameters, optimizer
/// state on rounded weights, masters or moments that are not there, weights alone. Notes, in a fixed order, each naming
/// at most three tensors. Pure.
std::vector<Finding> traps(const Map& map);

}  // namespace ckpt
