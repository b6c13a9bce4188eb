#include "catalog/scan/utc.hpp"

#include <fmt/format.h>

#include <charconv>

namespace ckpt::catalog {
namespace {

/// Exactly `digits` digits at `at`.
std::optional<unsigned> number_at(std::string_view text, std::size_t at, std::size_t digits) {
  if (text.size() < at + digits) return std::nullopt;
  unsigned value = 0;
  for (const char c : text.substr(at, digits)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<unsigned>(c - '0');
  }
  return value;
}

std::optional<Time> parse_day(std::string_view text) {
  const auto year = number_at(text, 0, 4);
  const auto month = number_at(text, 5, 2);
  const auto day = number_at(text, 8, 2);
  if (!year || !month || !day || text[4] != '-' || text[7] != '-' || *year == 0) return std::nullopt;
  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(*year)), std::chrono::month(*month),
                                         std::chrono::day(*day));
  if (!date.ok()) return std::nullopt;
  return std::chrono::sys_days(date);
}

/// The text after the seconds: "Z" or a fraction and "Z".
std::optional<Duration> parse_fraction(std::string_view text) {
  if (text == "Z") return Duration(0);
  if (text.size() < 3 || text.size() > 11 || text.front() != '.' || text.back() != 'Z') return std::nullopt;
  const std::string_view digits = text.substr(1, text.size() - 2);
  if (digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  std::string padded(digits);
  padded.resize(9, '0');
  return Duration(number_at(padded, 0, 3).value_or(0));
}

}  // namespace

std::string time_text(Time time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count(), clock.subseconds().count());
}

std::optional<Time> parse_time(std::string_view text) {
  const auto day = parse_day(text);
  if (!day || text.size() == 10) return day;
  const auto hour = number_at(text, 11, 2);
  const auto minute = number_at(text, 14, 2);
  const auto second = number_at(text, 17, 2);
  if (!hour || !minute || !second || text[10] != 'T' || text[13] != ':' || text[16] != ':') return std::nullopt;
  if (*hour > 23 || *minute > 59 || *second > 59) return std::nullopt;
  const auto fraction = parse_fraction(text.substr(19));
  if (!fraction) return std::nullopt;
  return *day + std::chrono::hours(*hour) + std::chrono::minutes(*minute) + std::chrono::seconds(*second) + *fraction;
}

}  // namespace ckpt::catalog
