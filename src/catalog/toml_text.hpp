#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ckpt::catalog {

/// The first byte that is not ASCII and stands in no string and no comment, where TOML 1.0 has none; nothing if there
/// is none. Asked before parsing: for some such characters the parser's own tables have no answer.
std::optional<std::size_t> stray_character(std::string_view toml);

}  // namespace ckpt::catalog
