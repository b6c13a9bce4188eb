#pragma once

#include <string>

#include "format/model/map_rules.hpp"
#include "format/model/model.hpp"

namespace ckpt {

/// Gives the map the shapes and names that a user's rules say: a flat tensor becomes the parameters that it holds, each
/// a run of it, and tensors get other names. A rule that matches nothing is a finding.
///
/// errors  usage: what a rule says does not fit its tensor (more or fewer elements, not a dense 1-D one), or two
/// tensors
///         get one name
Result<> apply_rules(Map& map, const MapRules& rules, const std::string& root);

/// FSDP1's flat parameters, whose shapes are in the model and in no file: `_flat_param`, `flat_param`, at the end of a
/// name.
/// errors  unsupported, naming the first and what to say of it
Result<> refuse_flat_parameters(const Map& map, const std::string& root);

}  // namespace ckpt
