#pragma once

#include <optional>
#include <string_view>

#include "format/model/map_rules.hpp"

namespace ckpt::naming {

using Side = MapRules::Side;

/// The word for a side of the profiles: "hf", "megatron".
std::string_view side_word(Side side);
std::optional<Side> find_side(std::string_view word);

}  // namespace ckpt::naming
