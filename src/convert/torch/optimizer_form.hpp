#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/model/value.hpp"

namespace ckpt::torch {

/// Optimizer state by parameter, as DeepSpeed and other sources of flat names have it.
struct NamedOptimizer {
  /// A list of dicts; "params" in each are names, or numbers. Null where the source has none.
  ValuePtr groups{};
  /// A list of dicts {"step": ..., "params": names}: steps that are kept once for several parameters. May be null.
  ValuePtr group_state{};
  struct Slot {
    std::string parameter{};  ///< a name, or a number
    std::string slot{};       ///< "exp_avg"
    ValuePtr value{};
  };
  std::vector<Slot> slots{};                               ///< in the source's order
  std::unordered_map<std::string, std::string> renamed{};  ///< new names of parameters
};

/// {"state": {i: {slot: value}}, "param_groups": [{..., "params": [i], "param_names": [name]}]}, as torch.optim's
/// state_dict: parameters are counted through the groups in order; numbered ones have no names. Parameters with state
/// but without a group follow in a separate group without hyperparameters; `groupless` is their number.
Dict torch_optimizer(const NamedOptimizer& optimizer, std::size_t& groupless);

}  // namespace ckpt::torch
