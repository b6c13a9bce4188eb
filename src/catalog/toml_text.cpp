#include "catalog/toml_text.hpp"

namespace ckpt::catalog {
namespace {

/// One past the string that begins at `at`, or the end of its line.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (text[i] == quote) {
      return i + 1;
    } else if (text[i] == '\n') {
      return i;
    }
  }
  return text.size();
}

}  // namespace

std::optional<std::size_t> stray_character(std::string_view toml) {
  // Within a string over several lines the parser looks for blanks, too, and nothing here tells where it ends.
  const bool long_strings = toml.find("\"\"\"") != std::string_view::npos || toml.find("'''") != std::string_view::npos;
  // A string begins a key or a value; a quote in any other place is one more wrong character.
  constexpr std::string_view before_string = "\n=,[{";
  char last = '\n';  // that is no blank
  // A byte order mark may stand first.
  for (std::size_t i = toml.starts_with("\xef\xbb\xbf") ? 3 : 0; i < toml.size();) {
    const char c = toml[i];
    if (static_cast<unsigned char>(c) >= 0x80) return i;
    if (c == '#' && !long_strings) {
      i = toml.find('\n', i);
      continue;
    }
    const bool quote = c == '"' || c == '\'';
    i = quote && !long_strings && before_string.find(last) != std::string_view::npos ? end_of_string(toml, i) : i + 1;
    if (c != ' ' && c != '\t' && c != '\r') last = c;
  }
  return std::nullopt;
}

}  // namespace ckpt::catalog
