#include "catalog/toml_text.hpp"

#include <algorithm>

namespace ckpt::catalog {

std::optional<std::size_t> stray_character(std::string_view toml) {
  // A byte order mark may come first.
  std::size_t begin = toml.starts_with("\xef\xbb\xbf") ? 3 : 0;
  const bool long_strings = toml.find("\"\"\"") != std::string_view::npos || toml.find("'''") != std::string_view::npos;
  while (begin < toml.size()) {
    const std::size_t end = std::min(toml.find('\n', begin), toml.size());
    const std::size_t first = toml.find_first_not_of(" \t", begin);
    const bool comment = first < end && toml[first] == '#' && !long_strings;
    for (std::size_t i = begin; i < end && !comment; ++i) {
      if (static_cast<unsigned char>(toml[i]) >= 0x80) return i;
    }
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace ckpt::catalog
