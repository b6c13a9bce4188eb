#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ckpt::catalog {

/// The first byte that is not ASCII, but for lines that are comments; nothing if there is none. Asked before parsing:
/// for some characters in wrong places the parser's own tables have no answer, and which places are wrong only it
/// knows. In strings \uXXXX stands for other characters.
std::optional<std::size_t> stray_character(std::string_view toml);

}  // namespace ckpt::catalog
