#include "cli/units.hpp"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cmath>
#include <limits>

namespace ckpt::cli {
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

struct Scale {
  double divisor = 1;
  std::string_view unit = "B";
};

/// The unit in which `value` has one to three digits before the point, after rounding.
Scale scale_of(double value, SizeStyle style) {
  static constexpr std::array<std::string_view, 7> binary{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  static constexpr std::array<std::string_view, 7> decimal{"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  const double base = style == SizeStyle::binary ? 1024.0 : 1000.0;
  std::size_t power = 0;
  double divisor = 1;
  while (power + 1 < binary.size() && std::round(value / divisor) >= base) {
    divisor *= base;
    ++power;
  }
  return {divisor, style == SizeStyle::binary ? binary[power] : decimal[power]};
}

/// Digits after the point that make three significant ones.
int fraction_digits(double value) {
  if (value < 9.995) return 2;
  return value < 99.95 ? 1 : 0;
}

/// Three significant digits; none after the point where all of them are zero.
std::string three_digits(double value) {
  std::string out = fmt::format("{:.{}f}", value, fraction_digits(value));
  const std::size_t point = out.find('.');
  if (point != std::string::npos && out.find_first_not_of('0', point + 1) == std::string::npos) out.resize(point);
  return out;
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
    if (unit.empty() || unit == "s") unit_ms = 1000;
    if (unit == "m" || unit == "min") unit_ms = 60'000;
    if (unit == "h") unit_ms = 3'600'000;
    if (unit == "d") unit_ms = 86'400'000;
    if (unit == "w") unit_ms = 604'800'000;
  }
  const auto value = unit_ms != 0 ? times(*number, unit_ms) : std::nullopt;
  if (!value || *value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return fail({.code = Errc::usage,
                 .message = fmt::format("'{}' is not a time", text),
                 .hint = "write 90s, 15m, 2h, 7d or 4w"});
  return std::chrono::milliseconds(static_cast<std::int64_t>(*value));
}

Result<std::uint64_t> parse_count(std::string_view text, std::uint64_t least, std::uint64_t most) {
  const auto number = read_decimal(trimmed(text));
  if (!number || !number->rest.empty() || number->fraction_digits != 0 || number->digits < least ||
      number->digits > most || text.find('.') != std::string_view::npos)
    return fail(Errc::usage, fmt::format("'{}' is not a whole number from {} to {}", text, least, most));
  return number->digits;
}

std::string format_size(std::uint64_t bytes, SizeStyle style) {
  if (style == SizeStyle::exact) return fmt::format("{} B", bytes);
  const Scale scale = scale_of(static_cast<double>(bytes), style);
  return fmt::format("{} {}", three_digits(static_cast<double>(bytes) / scale.divisor), scale.unit);
}

std::string format_rate(double bytes_per_second, SizeStyle style) {
  if (!(bytes_per_second > 0)) bytes_per_second = 0;
  if (style == SizeStyle::exact) return fmt::format("{:.0f} B/s", bytes_per_second);
  const Scale scale = scale_of(bytes_per_second, style);
  return fmt::format("{} {}/s", three_digits(bytes_per_second / scale.divisor), scale.unit);
}

std::string format_size_of(std::uint64_t done, std::uint64_t total, SizeStyle style) {
  if (style == SizeStyle::exact) return fmt::format("{}/{} B", done, total);
  const Scale scale = scale_of(static_cast<double>(total), style);
  const double whole = static_cast<double>(total) / scale.divisor;
  const int digits = scale.divisor == 1 ? 0 : fraction_digits(whole);
  return fmt::format("{:.{}f}/{:.{}f} {}", static_cast<double>(done) / scale.divisor, digits, whole, digits,
                     scale.unit);
}

std::string format_seconds(double seconds) {
  if (!(seconds > 0)) seconds = 0;
  if (seconds < 0.0005) return "0 s";
  if (seconds < 0.0995) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 0.995) return fmt::format("{:.2f} s", seconds);
  if (seconds < 99.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string format_clock(double seconds) {
  if (!(seconds > 0)) seconds = 0;
  if (seconds > 359'999'999) return "unknown";
  const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole % 3600 / 60, whole % 60);
}

std::string format_count(std::uint64_t count) {
  std::string out = fmt::format("{}", count);
  for (std::size_t i = out.size(); i > 3; i -= 3) out.insert(i - 3, 1, ' ');
  return out;
}

std::string format_counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", format_count(count), noun, count == 1 ? "" : "s");
}

std::string format_quantity(std::uint64_t count) {
  static constexpr std::array<std::pair<double, std::string_view>, 3> scales{
      {{1e12, "trillion"}, {1e9, "billion"}, {1e6, "million"}}};
  const auto value = static_cast<double>(count);
  for (const auto& [unit, word] : scales)
    if (value >= unit * 0.9995) return fmt::format("{} {}", three_digits(value / unit), word);
  return format_count(count);
}

}  // namespace ckpt::cli
