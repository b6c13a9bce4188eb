#pragma once

#include <vector>

#include "format/model.hpp"

namespace ckpt::dcp {

/// Fills role, parameter and slot of optimizer state, by the names that torch's state-dict functions give it:
/// `optimizer.state.<parameter>.<slot>`, nested or flattened, below any root ("app.optim", "optimizers.0"); or
/// `state.<parameter>.<slot>` at the root, for a known slot. The parameter is the name of the weight that ends in that
/// text, where one does ("model." + text before others); else the text. Other tensors below an optimizer are slots
/// without parameter. Blobs keep their role.
///
/// paths  one a tensor: planner_data's, or empty
void assign_roles(std::vector<Tensor>& tensors, const std::vector<Path>& paths);

}  // namespace ckpt::dcp
