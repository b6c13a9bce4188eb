#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ckpt::cli {

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 0;  ///< 0: no well-formed UTF-8 stands there
};

/// What stands at the start of `text`, which is not empty (RFC 3629: no overlong forms, no surrogates, nothing above
/// U+10FFFF).
CodePoint first_code_point(std::string_view text);

/// Whether a character does something else than show: controls (C0, DEL, C1), line separators, those that turn the
/// direction of writing, those that have no width. Text that holds one can read as another text.
bool is_hidden(std::uint32_t code_point);

}  // namespace ckpt::cli
