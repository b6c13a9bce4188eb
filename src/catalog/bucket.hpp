#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "format/result.hpp"

/// Points in time, and the hours, days, weeks, months and years that they fall into. Nothing here reads a clock.
namespace ckpt::catalog {

using Duration = std::chrono::milliseconds;
using Time = std::chrono::sys_time<Duration>;  ///< UTC

/// to - from, clamped to 64 bits: times come from files.
Duration elapsed(Time from, Time to);

enum class Period : std::uint8_t { hourly, daily, weekly, monthly, yearly };

/// A fixed distance from UTC, so that the same policy decides the same wherever it runs.
struct TimeZone {
  std::chrono::minutes east{};
  bool operator==(const TimeZone&) const = default;
};

/// "UTC", "Z", "+02:00", "-05:30". usage on anything else, names of zones too: their rules change with the machine.
Result<TimeZone> parse_time_zone(std::string_view text);
std::string time_zone_text(TimeZone zone);

/// The number of the period that a time falls into; greater is later, equal is the same period.
/// Weeks are those of ISO 8601: Monday to Sunday, and a year's first week is the one that holds its first Thursday.
std::int64_t bucket_of(Period period, Time time, TimeZone zone);

/// "2026-01-03T10", "2026-01-03", "2026-W01", "2026-01", "2026".
std::string bucket_name(Period period, std::int64_t bucket);

}  // namespace ckpt::catalog
