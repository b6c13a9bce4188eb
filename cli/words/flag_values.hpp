#pragma once

#include <fmt/format.h>

#include "cli/words/words.hpp"
#include "format/text/error_context.hpp"
#include "format/text/quantity.hpp"

/// Flags whose values are numbers with units.
namespace ckpt::cli {

/// Parses an option's value with one of the unit parsers; `out` is unchanged if the option is not given.
/// errors  of `read`, prefixed with the name of the option (or of its variable)
template <class T, class Read>
Result<> read_flag(const Words& words, std::string_view flag, T& out, Read read) {
  const Value* value = words.value(flag);
  if (value == nullptr) return {};
  auto number = read(std::string_view(value->text));
  if (!number) return fail(with_context(std::move(number).error(), value->origin));
  out = static_cast<T>(*number);
  return {};
}

inline Result<double> seconds_of(std::string_view text) {
  CKPT_TRY(const std::chrono::milliseconds duration, parse_duration(text));
  return static_cast<double>(duration.count()) / 1000;
}

inline Result<double> positive_seconds_of(std::string_view text) {
  CKPT_TRY(const double seconds, seconds_of(text));
  if (!(seconds > 0)) return fail(Errc::usage, "expected a time above 0");
  return seconds;
}

}  // namespace ckpt::cli
