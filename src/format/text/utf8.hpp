#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ckpt {

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 0;  ///< 0: not well-formed UTF-8
};

/// The first code point of `text`, which is not empty (RFC 3629: no overlong forms, no surrogates, nothing above
/// U+10FFFF).
CodePoint first_code_point(std::string_view text);

/// True when all bytes are well-formed UTF-8.
bool is_utf8(std::string_view text);

/// Whether a character is invisible or controls the display: controls (C0, DEL, C1), line separators, direction marks,
/// zero-width characters. A text with such characters can look like a different text.
bool is_hidden(std::uint32_t code_point);

/// Columns that a character takes on a terminal: 0 of combining marks, 2 of East Asian wide and emoji, else 1.
/// source  Unicode Standard Annex 11
std::size_t columns_of(std::uint32_t code_point);

}  // namespace ckpt
