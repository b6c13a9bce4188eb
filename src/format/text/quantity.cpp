#include "format/text/quantity.hpp"

#include <fmt/format.h>

#include <cctype>
#include <limits>
#include <optional>

namespace ckpt {
namespace {

__extension__ using Wide = unsigned __int128;

/// A decimal number as digits / 10^fraction_digits, so that "1.1G" is exact before it is rounded down.
struct Decimal {
  std::uint64_t digits = 0;
  unsigned fraction_digits = 0;
  std::string_view rest{};
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::optional<Decimal> read_decimal(std::string_view text) {
  Decimal out;
  bool any = false;
  bool fraction = false;
  bool digit_before = false;
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (is_digit(c)) {
      if (fraction && out.fraction_digits == 9) continue;  // below a byte of the largest unit that fits 64 bits
      if (__builtin_mul_overflow(out.digits, 10u, &out.digits) ||
          __builtin_add_overflow(out.digits, static_cast<unsigned>(c - '0'), &out.digits))
        return std::nullopt;
      if (fraction) ++out.fraction_digits;
      any = digit_before = true;
    } else if (c == '_' && digit_before && i + 1 < text.size() && is_digit(text[i + 1])) {
      digit_before = false;
    } else if (c == '.' && !fraction) {
      fraction = true;
      digit_before = false;
    } else {
      break;
    }
  }
  if (!any) return std::nullopt;
  while (i < text.size() && text[i] == ' ') ++i;
  out.rest = text.substr(i);
  return out;
}

std::optional<std::uint64_t> times(const Decimal& number, std::uint64_t unit) {
  Wide value = Wide{number.digits} * unit;
  for (unsigned i = 0; i < number.fraction_digits; ++i) value /= 10;
  if (value > std::numeric_limits<std::uint64_t>::max()) return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

std::optional<std::uint64_t> size_unit(std::string_view suffix) {
  if (suffix.empty()) return 1;
  std::string lower;
  for (const char c : suffix) lower.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  if (lower == "b") return 1;
  constexpr std::string_view letters = "kmgtpe";
  const std::size_t power = letters.find(lower[0]);
  if (power == std::string_view::npos) return std::nullopt;
  const std::string_view tail = std::string_view(lower).substr(1);
  if (tail.empty() || tail == "ib") return std::uint64_t{1} << (10 * (power + 1));
  if (tail != "b") return std::nullopt;
  std::uint64_t unit = 1;
  for (std::size_t i = 0; i <= power; ++i) unit *= 1000;
  return unit;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  const auto number = read_decimal(trimmed(text));
  const auto unit = number ? size_unit(number->rest) : std::nullopt;
  const auto value = unit ? times(*number, *unit) : std::nullopt;
  if (!value)
    return fail({.code = Errc::usage,
                 .message = fmt::format("'{}' is not a size", text),
                 .hint = "write 4G or 4GiB (2^32 bytes), 4GB (4 000 000 000 bytes), 1.5TiB, 4_000_000"});
  return *value;
}

Result<std::uint64_t> parse_share(std::string_view text, std::uint64_t total) {
  const std::string_view whole = trimmed(text);
  if (whole.empty() || whole.back() != '%') return parse_size(text);
  const auto number = read_decimal(whole.substr(0, whole.size() - 1));
  std::optional<std::uint64_t> value;
  if (number && number->rest.empty()) value = times(*number, 1'000'000'000);  // billionths of a percent
  constexpr std::uint64_t hundred = 100'000'000'000;
  if (!value || *value == 0 || *value > hundred)
    return fail({.code = Errc::usage,
                 .message = fmt::format("'{}' is not a percentage", text),
                 .hint = "write 50% or a size such as 4G"});
  return static_cast<std::uint64_t>(Wide{total} * *value / hundred);
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const auto number = read_decimal(trimmed(text));
  std::uint64_t unit_ms = 0;
  if (number) {
    const std::string_view unit = number->rest;
    if (unit == "ms") unit_ms = 1;
    if (unit == "s" || (unit.empty() && number->digits == 0)) unit_ms = 1000;
    if (unit == "m" || unit == "min") unit_ms = 60'000;
    if (unit == "h") unit_ms = 3'600'000;
    if (unit == "d") unit_ms = 86'400'000;
    if (unit == "w") unit_ms = 604'800'000;
  }
  if (number && number->rest.empty() && unit_ms == 0)
    return fail({.code = Errc::usage,
                 .message = fmt::format("'{}' has no unit", text),
                 .hint = fmt::format("write {0}s, {0}m, {0}h or {0}d", trimmed(text))});
  const auto value = unit_ms != 0 ? times(*number, unit_ms) : std::nullopt;
  if (!value || *value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return fail({.code = Errc::usage,
                 .message = fmt::format("'{}' is not a time", text),
                 .hint = "write 90s, 15m, 2h, 7d or 4w"});
  return std::chrono::milliseconds(static_cast<std::int64_t>(*value));
}

std::string size_text(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1023.5 && unit + 1 < units.size(); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, units[unit]);
}

Result<std::uint64_t> parse_count(std::string_view text, std::uint64_t least, std::uint64_t most) {
  const auto number = read_decimal(trimmed(text));
  if (!number || !number->rest.empty() || number->fraction_digits != 0 || number->digits < least ||
      number->digits > most || text.find('.') != std::string_view::npos)
    return fail(Errc::usage, most == UINT64_MAX
                                 ? fmt::format("'{}' is not a whole number of at least {}", text, least)
                                 : fmt::format("'{}' is not a whole number from {} to {}", text, least, most));
  return number->digits;
}

}  // namespace ckpt
