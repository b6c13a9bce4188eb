#include "cli/text/units.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace ckpt::cli {
namespace {

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
