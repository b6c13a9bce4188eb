#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

namespace ckpt {

/// The number that `text` begins with, which is cut off. No blanks, no '+'; '-' for signed types only. Nothing, and
/// `text` as it was, where it begins with none, or with one that does not fit.
template <std::integral Number>
std::optional<Number> take_number(std::string_view& text, int base = 10) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// All of `text` as a number, under the same rules. Nothing where it is empty or holds anything else.
template <std::integral Number>
std::optional<Number> parse_number(std::string_view text, int base = 10) {
  const auto value = take_number<Number>(text, base);
  return text.empty() ? value : std::nullopt;
}

/// The same of a decimal fraction: "1.5", "2e-3", "nan", "inf".
template <std::floating_point Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

}  // namespace ckpt
