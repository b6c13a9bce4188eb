#include "catalog/bucket.hpp"

#include <fmt/format.h>

#include <limits>

namespace ckpt::catalog {
namespace {

constexpr std::int64_t kHourMs = 3'600'000;
constexpr std::int64_t kDayMs = 24 * kHourMs;

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

struct Civil {
  std::int64_t year;
  std::int64_t month;  ///< 1 to 12
  std::int64_t day;    ///< 1 to 31
};

/// The date of a day counted from 1970-01-01, in years that begin in March (H. Hinnant, "chrono-Compatible Low-Level
/// Date Algorithms"). Own code rather than std::chrono: its years end at 32767, and times come from files.
Civil civil_of(std::int64_t days) {
  const std::int64_t z = days + 719'468;
  const std::int64_t era = floor_div(z, 146'097);
  const std::int64_t day_of_era = z - era * 146'097;
  const std::int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36'524 - day_of_era / 146'096) / 365;
  const std::int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const std::int64_t from_march = (5 * day_of_year + 2) / 153;
  const std::int64_t month = from_march < 10 ? from_march + 3 : from_march - 9;
  return {year_of_era + era * 400 + (month <= 2 ? 1 : 0), month, day_of_year - (153 * from_march + 2) / 5 + 1};
}

/// Days from 1970-01-01 to January 1st of a year.
std::int64_t year_begin(std::int64_t year) {
  const std::int64_t before = year - 1;
  return before * 365 + floor_div(before, 4) - floor_div(before, 100) + floor_div(before, 400) - 719'162;
}

std::string date_text(std::int64_t days) {
  const Civil civil = civil_of(days);
  return fmt::format("{:04}-{:02}-{:02}", civil.year, civil.month, civil.day);
}

bool two_digits(std::string_view text, int& out) {
  if (text.size() != 2 || text[0] < '0' || text[0] > '9' || text[1] < '0' || text[1] > '9') return false;
  out = (text[0] - '0') * 10 + (text[1] - '0');
  return true;
}

}  // namespace

Duration elapsed(Time from, Time to) {
  std::int64_t out = 0;
  const std::int64_t a = to.time_since_epoch().count();
  const std::int64_t b = from.time_since_epoch().count();
  if (__builtin_sub_overflow(a, b, &out))
    out = a < b ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max();
  return Duration(out);
}

Result<TimeZone> parse_time_zone(std::string_view text) {
  if (text == "UTC" || text == "Z") return TimeZone{};
  int hours = 0;
  int minutes = 0;
  const bool offset = text.size() == 6 && (text[0] == '+' || text[0] == '-') && text[3] == ':' &&
                      two_digits(text.substr(1, 2), hours) && two_digits(text.substr(4, 2), minutes) && hours <= 14 &&
                      minutes < 60;
  if (!offset)
    return fail({.code = Errc::usage,
                 .message = fmt::format("'{}' is not a time zone", text),
                 .hint = "use UTC or an offset such as +02:00 (zone names are not supported)"});
  const std::chrono::minutes distance(hours * 60 + minutes);
  return TimeZone{text[0] == '-' ? -distance : distance};
}

std::string time_zone_text(TimeZone zone) {
  const std::int64_t minutes = zone.east.count();
  if (minutes == 0) return "UTC";
  const std::int64_t size = minutes < 0 ? -minutes : minutes;
  return fmt::format("{}{:02}:{:02}", minutes < 0 ? '-' : '+', size / 60, size % 60);
}

std::int64_t bucket_of(Period period, Time time, TimeZone zone) {
  // Whole hours first, so that the zone cannot carry a time over the end of 64 bits.
  const std::int64_t utc = time.time_since_epoch().count();
  const std::int64_t minutes = floor_div(utc, 60'000) + zone.east.count();
  const std::int64_t days = floor_div(minutes, kDayMs / 60'000);
  switch (period) {
    case Period::hourly:
      return floor_div(minutes, kHourMs / 60'000);
    case Period::daily:
      return days;
    case Period::weekly:
      return floor_div(days + 3, 7);  // 1970-01-01 was a Thursday
    case Period::monthly: {
      const Civil civil = civil_of(days);
      return civil.year * 12 + civil.month - 1;
    }
    case Period::yearly:
      return civil_of(days).year;
  }
  return 0;
}

std::string bucket_name(Period period, std::int64_t bucket) {
  switch (period) {
    case Period::hourly:
      return fmt::format("{}T{:02}", date_text(floor_div(bucket, 24)), bucket - floor_div(bucket, 24) * 24);
    case Period::daily:
      return date_text(bucket);
    case Period::weekly: {
      const std::int64_t thursday = bucket * 7;
      const std::int64_t year = civil_of(thursday).year;
      return fmt::format("{:04}-W{:02}", year, (thursday - year_begin(year)) / 7 + 1);
    }
    case Period::monthly:
      return fmt::format("{:04}-{:02}", floor_div(bucket, 12), bucket - floor_div(bucket, 12) * 12 + 1);
    case Period::yearly:
      return fmt::format("{:04}", bucket);
  }
  return {};
}

}  // namespace ckpt::catalog
