#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "convert/deepspeed/files/map_builder.hpp"
#include "convert/deepspeed/files/model_states.hpp"

namespace ckpt::deepspeed {

/// For each entry of `module`: the index of the entry whose bytes it shares, or its own. Entries are the same when they
/// are the same view of the same storage, or (`placeholders`, stage 3) when shared_params or their empty storage says
/// so. Of several, the one in `preferred` holds the data, else the one shared_params points at, else the first.
std::vector<std::size_t> tied_to(const ModelStates& model, const std::unordered_set<std::string>& preferred,
                                 bool placeholders);

/// The names of all parameters that the optimizer holds (stages 1 to 3).
std::unordered_set<std::string> trained_names(const std::vector<GroupShapes>& groups);

/// Stages 0 to 2: every weight and buffer of `module`, ties as aliases; frozen weights that `module` lacks from their
/// fragments. Reports trained parameters without a weight.
Result<> place_weights(MapBuilder& builder, const ModelStates& model, const std::unordered_set<std::string>& trained);

}  // namespace ckpt::deepspeed
