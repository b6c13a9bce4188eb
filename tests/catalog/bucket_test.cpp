#include "catalog/bucket.hpp"

#include <gtest/gtest.h>

namespace ckpt::catalog {
namespace {

using std::chrono::sys_days;
using std::chrono::year;

Time at(int y, unsigned m, unsigned d, int hour = 0, int minute = 0) {
  return Time{sys_days{year{y} / std::chrono::month{m} / std::chrono::day{d}}} + std::chrono::hours(hour) +
         std::chrono::minutes(minute);
}
std::string name(Period period, Time time, std::string_view zone = "UTC") {
  return bucket_name(period, bucket_of(period, time, *parse_time_zone(zone)));
}

TEST(Bucket, NamesHoursDaysMonthsAndYears) {
  EXPECT_EQ(name(Period::hourly, at(2026, 1, 3, 10, 59)), "2026-01-03T10");
  EXPECT_EQ(name(Period::daily, at(2024, 2, 29, 23, 59)), "2024-02-29");
  EXPECT_EQ(name(Period::monthly, at(2026, 12, 31)), "2026-12");
  EXPECT_EQ(name(Period::yearly, at(1999, 12, 31, 23, 59)), "1999");
}

TEST(Bucket, WeeksAreThoseOfIso8601) {
  EXPECT_EQ(name(Period::weekly, at(2026, 1, 1)), "2026-W01");    // a Thursday
  EXPECT_EQ(name(Period::weekly, at(2025, 12, 29)), "2026-W01");  // the Monday before
  EXPECT_EQ(name(Period::weekly, at(2025, 12, 28)), "2025-W52");
  EXPECT_EQ(name(Period::weekly, at(2021, 1, 3)), "2020-W53");  // a Sunday
  EXPECT_EQ(name(Period::weekly, at(2021, 1, 4)), "2021-W01");
  EXPECT_EQ(name(Period::weekly, at(1969, 12, 31)), "1970-W01");
}

TEST(Bucket, DatesAgreeWithTheStandardLibraryOverManyYears) {
  for (sys_days day = sys_days{year{1600} / 1 / 1}; day < sys_days{year{2500} / 1 / 1}; day += std::chrono::days(13)) {
    const std::chrono::year_month_day date(day);
    const std::int64_t month =
        static_cast<int>(date.year()) * 12 + static_cast<int>(static_cast<unsigned>(date.month())) - 1;
    ASSERT_EQ(bucket_of(Period::monthly, Time{day}, {}), month);
    ASSERT_EQ(bucket_of(Period::yearly, Time{day}, {}), static_cast<int>(date.year()));
    const std::chrono::weekday weekday(day);
    const sys_days monday = day - (weekday - std::chrono::Monday);
    ASSERT_EQ(bucket_of(Period::weekly, Time{day}, {}), bucket_of(Period::weekly, Time{monday}, {}));
    ASSERT_EQ(bucket_of(Period::weekly, Time{monday}, {}),
              bucket_of(Period::weekly, Time{monday - std::chrono::days(1)}, {}) + 1);
  }
}

TEST(Bucket, TimeZonesMoveTheBorders) {
  EXPECT_EQ(name(Period::daily, at(2026, 1, 3, 23, 30), "+01:00"), "2026-01-04");
  EXPECT_EQ(name(Period::daily, at(2026, 1, 3, 0, 30), "-05:30"), "2026-01-02");
  EXPECT_EQ(name(Period::yearly, at(1970, 1, 1), "-00:01"), "1969");
}

TEST(Bucket, TimeZonesAreFixedDistances) {
  for (const char* good : {"UTC", "+02:00", "-05:30", "+14:00"}) {
    ASSERT_TRUE(parse_time_zone(good)) << good;
    EXPECT_EQ(time_zone_text(*parse_time_zone(good)), good);
  }
  for (const char* bad : {"", "Europe/Paris", "+2", "+02:60", "+15:00", "02:00", "+0a:00", "local"})
    EXPECT_FALSE(parse_time_zone(bad)) << bad;
}

TEST(Bucket, TimesFromTheEndsOfSixtyFourBitsFallSomewhere) {
  const TimeZone east = *parse_time_zone("+14:00");
  for (const Period period : {Period::hourly, Period::daily, Period::weekly, Period::monthly, Period::yearly}) {
    EXPECT_LT(bucket_of(period, Time::min(), east), bucket_of(period, Time{}, east));
    EXPECT_LT(bucket_of(period, Time{}, east), bucket_of(period, Time::max(), east));
    EXPECT_FALSE(bucket_name(period, bucket_of(period, Time::max(), east)).empty());
  }
  EXPECT_EQ(elapsed(Time::min(), Time::max()), Duration::max());
  EXPECT_EQ(elapsed(Time::max(), Time::min()), Duration::min());
}

}  // namespace
}  // namespace ckpt::catalog
