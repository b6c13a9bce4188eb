#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ckpt::catalog {

/// The first byte that is not ASCII and stands in no comment and no string on one line; nothing if there is none.
/// Asked before parsing: for some such characters the parser's own tables have no answer. TOML has them in strings over
/// several lines besides; no policy needs those.
std::optional<std::size_t> stray_character(std::string_view toml);

}  // namespace ckpt::catalog
