#pragma once

#include <vector>

#include "convert/deepspeed/map_builder.hpp"
#include "convert/deepspeed/model_states.hpp"
#include "convert/deepspeed/optim_states.hpp"

namespace ckpt::deepspeed {

/// A stage-3 rank's parts of the frozen parameters, in the order of ModelStates::frozen.
using FrozenParts = std::vector<Run>;

/// The runs of a rank's frozen_param_fragments, checked against the shapes of the first rank.
/// errors   corrupt: a part is missing, or is not ceil(n / ranks) long; unsupported: quantised parts
Result<FrozenParts> frozen_parts(const std::string& path, const std::vector<NamedShape>& frozen,
                                 const std::vector<NamedTensor>& fragments, std::uint64_t part_count);

/// Stage 3: every parameter is cut by itself and its parts lie one after another in each rank's sub-group. Weights
/// stand in no file: their chunks are those of the master, cast to the dtype of the placeholder in `module`. Buffers
/// stand in the model file as they are, frozen parameters in parts of the model's dtype.
///
/// ranks    every rank's optimizer file, in rank order; frozen: likewise, of the model files
/// errors   corrupt, naming file and sub-group: wrong element counts, ranks with different slots; uncovered: a
/// parameter of
///          `module` that no partition holds
/// source   deepspeed/runtime/zero/partition_parameters.py, stage3.py; see format/cut.hpp
Result<> place_partitioned(MapBuilder& builder, const ModelStates& model, const std::vector<OptimStates>& ranks,
                           const std::vector<FrozenParts>& frozen);

}  // namespace ckpt::deepspeed
