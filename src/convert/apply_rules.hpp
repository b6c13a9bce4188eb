#pragma once

#include <string>
#include <string_view>

#include "format/model/map_rules.hpp"
#include "format/model/model.hpp"

namespace ckpt {

/// The remedy where a source does not record the order of the model's parameters.
constexpr std::string_view kListParameters =
    "--map FILE    lists them: {\"ckpt-map\": 1, \"parameters\": [name for name, _ in model.named_parameters()]}";

/// Applies a user's rules to the map: a flat tensor becomes the parameters in it,
/// each a run of it, and tensors are renamed. A rule that matches nothing is a
/// finding. The order of the parameters is kept in the map; of tied names the one that no file holds becomes an alias.
///
/// errors  usage: a rule does not fit its tensor (more or fewer elements, not a dense 1-D one), two tensors get one
///         name, or a listed or tied name is missing
Result<> apply_rules(Map& map, const MapRules& rules, const std::string& root);

/// FSDP1's flat parameters, whose shapes are in the model and in no file: names that end in `_flat_param` or
/// `flat_param`.
/// errors  unsupported, naming the first and the rule to add
Result<> refuse_flat_parameters(const Map& map, const std::string& root);

}  // namespace ckpt
