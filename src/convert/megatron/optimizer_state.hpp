#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/megatron/rank_files.hpp"
#include "convert/megatron/rank_part.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt::megatron {

/// State of a part of a weight.
struct StateOfPart {
  const Part* part = nullptr;
  std::size_t tensor = 0;  ///< that holds it, in the map of the optimizer's file
  std::string slot{};      ///< "master", "exp_avg", ...
  Locator where{};         ///< its file counts in the joined map
  bool is_scalar = false;  ///< a number for the whole weight: the step
};
struct FoundState {
  std::vector<StateOfPart> states{};
  bool is_unknown = false;  ///< there is state that could not be assigned
};

/// Whether Megatron-LM puts a weight into a group with weight decay: all but biases and norms.
bool is_decayed(std::string_view name, const Shape& shape);

/// State that is numbered, as torch.optim does: ids count the parameters group by group; in a group they are in the order
/// of the model. Weights with decay are one group, biases and norms another; experts have groups of their own.
///
/// file    model_optim_rng.pt of a rank
/// parts   of this rank that are trained, in the order of its file
/// source  megatron/core/optimizer/__init__.py: _get_param_groups; optimizer.py: Float16OptimizerWithFloat16Params
Result<FoundState> find_numbered_state(const Map& map, std::span<const Part* const> parts, std::uint32_t file);

/// State of the distributed optimizer: one flat tensor of each kind for a buffer of weights. The weights of the rank's
/// model file are views of that buffer, so their offsets in the storage are those of their state, without the padding at
/// the buckets' ends. Of another layout the state stays unknown.
///
/// map     distrib_optim.pt of a rank
/// shape   of the run
/// stage   of the rank
/// root    of the iteration, for errors
/// errors  incomplete: it has room for weights that the model file lacks
/// source  megatron/core/optimizer/distrib_optimizer.py: get_parameter_state_dp_zero
Result<FoundState> find_flat_state(const Map& map, std::span<const Part* const> parts, std::uint32_t file,
                                   const RunShape& shape, std::uint64_t stage, const std::string& root);

}  // namespace ckpt::megatron
