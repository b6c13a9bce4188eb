#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "format/model/model.hpp"

namespace ckpt {

/// The reader found an optimizer's state dict: names below it are slots, whatever they are.
struct OptimizerState {
  Path path;  ///< of the dict that holds "state" and "param_groups"
  /// Names of parameters by their index, if the groups have them ("param_names"); state is keyed by either.
  std::unordered_map<std::int64_t, std::string> parameters{};
};

/// Whether what is at the path is the state of one of these optimizers. A tensor that has another path too is a weight, so
/// readers look at others first: tied tensors have the name, the place in the order and the role of their first path.
bool is_state_of(const Path& path, std::span<const OptimizerState> optimizers);

/// Fills role, parameter and slot of optimizer state, by the names that torch's state-dict functions give it:
/// `optimizer.state.<parameter>.<slot>`, nested or flattened, below any root ("app.optim", "optimizers.0"); or
/// `state.<parameter>.<slot>` at the root, for a known slot. The parameter is the name of the weight that ends in that
/// text, where one does ("model." + text before others); else the text. Of state that is keyed by index the parameter
/// stays empty, unless `known` names it. Other tensors below an optimizer, or below Flax's
/// `opt_state`, are slots without parameter. Blobs keep their role.
///
/// paths  one per tensor: where it is nested, so that its name is dotted(path); or empty
void assign_roles(std::vector<Tensor>& tensors, const std::vector<Path>& paths,
                  std::span<const OptimizerState> known = {});

}  // namespace ckpt
