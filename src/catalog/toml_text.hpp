#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ckpt::catalog {

/// The first byte that is not ASCII, except in comment lines; nothing if there is none. Checked before parsing: for
/// some characters in some places the parser's tables have no entry, and only the parser knows where. In strings \uXXXX
/// encodes other characters.
std::optional<std::size_t> stray_character(std::string_view toml);

}  // namespace ckpt::catalog
