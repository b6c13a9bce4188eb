#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ckpt::cli {

/// Lines that are wider than `width` columns go on in the next one, `indent` columns in. They break at blanks after the
/// first `indent` columns; a word that is wider than that stays whole. Inks take no columns.
std::string fitted(std::string_view text, std::size_t indent, std::size_t width);

/// A paragraph: all its lines are indented, also the first; ends with a line break.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);

}  // namespace ckpt::cli
