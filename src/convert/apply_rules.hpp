#pragma once

#include <string>

#include "format/model/map_rules.hpp"
#include "format/model/model.hpp"

namespace ckpt {

/// Applies a user's rules to the map: a flat tensor becomes the parameters in it,
/// each a run of it, and tensors are renamed. A rule that matches nothing is a
/// finding.
///
/// errors  usage: a rule does not fit its tensor (more or fewer elements, not a dense 1-D one), or two tensors get one
///         name
Result<> apply_rules(Map& map, const MapRules& rules, const std::string& root);

/// FSDP1's flat parameters, whose shapes are in the model and in no file: names that end in `_flat_param` or
/// `flat_param`.
/// errors  unsupported, naming the first and the rule to add
Result<> refuse_flat_parameters(const Map& map, const std::string& root);

}  // namespace ckpt
