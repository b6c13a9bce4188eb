#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ckpt::catalog {

/// The first byte that is not ASCII and stands in no comment and no string on one line; of a text with strings over
/// several lines, which no policy needs, the first that is not ASCII. Nothing if there is none. Asked before parsing:
/// for some characters in other places the parser's own tables have no answer.
std::optional<std::size_t> stray_character(std::string_view toml);

}  // namespace ckpt::catalog
