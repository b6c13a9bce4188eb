#include "cli/text/units.hpp"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <cmath>

#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TEST(ParseSize, LoneLettersAreBinaryAndLettersWithBAreDecimal) {
  EXPECT_EQ(parse_size("4G").value(), 4 * kGiB);
  EXPECT_EQ(parse_size("4GiB").value(), 4 * kGiB);
  EXPECT_EQ(parse_size("4GB").value(), 4'000'000'000u);
  EXPECT_EQ(parse_size("4gb").value(), 4'000'000'000u);
  EXPECT_EQ(parse_size("1.5TiB").value(), 1536 * kGiB);
  EXPECT_EQ(parse_size("4_000_000").value(), 4'000'000u);
  EXPECT_EQ(parse_size("512").value(), 512u);
  EXPECT_EQ(parse_size("512 B").value(), 512u);
  EXPECT_EQ(parse_size(" 256 MiB ").value(), 256u << 20);
}

TEST(ParseSize, FractionsAreExactBeforeTheyAreRoundedDown) {
  EXPECT_EQ(parse_size("1.1GB").value(), 1'100'000'000u);
  EXPECT_EQ(parse_size("0.3K").value(), 307u);
  EXPECT_EQ(parse_size(".5K").value(), 512u);
}

TEST(ParseSize, TheLargestSizesFitAndTheNextDoesNot) {
  EXPECT_EQ(parse_size("18446744073709551615").value(), ~std::uint64_t{0});
  EXPECT_FALSE(parse_size("18446744073709551616"));
  EXPECT_EQ(parse_size("15E").value(), std::uint64_t{15} << 60);
  EXPECT_FALSE(parse_size("16E"));
}

TEST(ParseSize, WhatIsNoSizeIsAUsageErrorThatSaysHowToWriteOne) {
  for (const char* text : {"", "G", "-4G", "4X", "4GBB", "4G 5", "1__0", "_1", "1_", "1.2.3", "0x10", "4Gi", "1e9"}) {
    const auto value = parse_size(text);
    ASSERT_FALSE(value) << text << " = " << *value;
    EXPECT_EQ(value.error().code, Errc::usage);
    EXPECT_NE(value.error().hint.find("4GiB"), std::string::npos);
  }
}

TEST(ParseShare, PercentagesAreOfTheTotalAndEndAtAHundred) {
  EXPECT_EQ(parse_share("50%", 4 * kGiB).value(), 2 * kGiB);
  EXPECT_EQ(parse_share("12.5 %", 800).value(), 100u);
  EXPECT_EQ(parse_share("100%", ~std::uint64_t{0}).value(), ~std::uint64_t{0});
  EXPECT_EQ(parse_share("2G", 4).value(), 2 * kGiB);
  EXPECT_FALSE(parse_share("0%", 100));
  EXPECT_FALSE(parse_share("101%", 100));
  EXPECT_FALSE(parse_share("%", 100));
  EXPECT_FALSE(parse_share("5G%", 100));
}

TEST(ParseDuration, UnitsAreSecondsToWeeks) {
  using std::chrono::milliseconds;
  EXPECT_EQ(parse_duration("90s").value(), milliseconds(90'000));
  EXPECT_FALSE(parse_duration("90"));  // of what?
  EXPECT_FALSE(parse_duration("0.5"));
  EXPECT_EQ(parse_duration("0").value(), milliseconds(0));
  EXPECT_EQ(parse_duration("250ms").value(), milliseconds(250));
  EXPECT_EQ(parse_duration("1.5m").value(), milliseconds(90'000));
  EXPECT_EQ(parse_duration("2h").value(), milliseconds(7'200'000));
  EXPECT_EQ(parse_duration("4w").value(), milliseconds(2'419'200'000));
  EXPECT_FALSE(parse_duration("4y"));
  EXPECT_FALSE(parse_duration("soon"));
  EXPECT_FALSE(parse_duration("10000000000000000w"));
}

TEST(ParseCount, AcceptsWholeNumbersInsideTheRangeOnly) {
  EXPECT_EQ(parse_count("8", 1, 8).value(), 8u);
  for (const char* text : {"0", "9", "-1", "1.0", "", "two", "1k"}) EXPECT_FALSE(parse_count(text, 1, 8)) << text;
}

TEST(FormatSize, ThreeDigitsAndAlwaysAUnit) {
  EXPECT_EQ(format_size(0, SizeStyle::binary), "0 B");
  EXPECT_EQ(format_size(1023, SizeStyle::binary), "1023 B");
  EXPECT_EQ(format_size(1536, SizeStyle::binary), "1.50 KiB");
  EXPECT_EQ(format_size(256u << 20, SizeStyle::binary), "256 MiB");
  EXPECT_EQ(format_size(16'063'000'000, SizeStyle::binary), "15 GiB");
  EXPECT_EQ(format_size((std::uint64_t{1} << 30) - 1, SizeStyle::binary), "1 GiB");
  EXPECT_EQ(format_size(5'000'000'000, SizeStyle::decimal), "5 GB");
  EXPECT_EQ(format_size(1234567, SizeStyle::exact), "1234567 B");
  EXPECT_EQ(format_size(~std::uint64_t{0}, SizeStyle::binary), "16 EiB");
}

TEST(FormatSizeOf, BothNumbersShareTheUnitOfTheTotal) {
  EXPECT_EQ(format_size_of(9'996'000'000, 16'063'000'000, SizeStyle::binary), "9.3/15.0 GiB");
  EXPECT_EQ(format_size_of(0, 2048, SizeStyle::binary), "0.00/2.00 KiB");
}

TEST(FormatTime, ReadsLikeSpeech) {
  EXPECT_EQ(format_seconds(0), "0 s");
  EXPECT_EQ(format_seconds(0.0123), "12 ms");
  EXPECT_EQ(format_seconds(8.13), "8.1 s");
  EXPECT_EQ(format_seconds(125), "2 min 05 s");
  EXPECT_EQ(format_seconds(4321), "1 h 12 min");
  EXPECT_EQ(format_clock(3.4), "0:03");
  EXPECT_EQ(format_clock(765), "12:45");
  EXPECT_EQ(format_clock(3765), "1:02:45");
}

TEST(FormatCount, GroupsDigitsAndNamesQuantities) {
  EXPECT_EQ(format_count(7), "7");
  EXPECT_EQ(format_count(1166), "1 166");
  EXPECT_EQ(format_count(1'234'567), "1 234 567");
  EXPECT_EQ(format_counted(1, "tensor"), "1 tensor");
  EXPECT_EQ(format_counted(291, "tensor"), "291 tensors");
  EXPECT_EQ(format_quantity(8'030'261'248), "8.03 billion");
  EXPECT_EQ(format_quantity(4352), "4 352");
}

RC_GTEST_PROP(SizeProperty, AFormattedSizeReadsBackWithinHalfAPercent, (std::uint64_t bytes, bool decimal)) {
  RC_PRE(bytes < std::uint64_t{15} << 60);  // what rounds up to 16 EiB does not fit any more
  const SizeStyle style = decimal ? SizeStyle::decimal : SizeStyle::binary;
  const auto read = parse_size(format_size(bytes, style));
  RC_ASSERT(read.has_value());
  const double error = std::fabs(static_cast<double>(*read) - static_cast<double>(bytes));
  RC_ASSERT(error <= 0.00502 * static_cast<double>(bytes));
}

RC_GTEST_PROP(SizeProperty, PlainBytesReadBackExactly, (std::uint64_t bytes)) {
  RC_ASSERT(parse_size(format_size(bytes, SizeStyle::exact)).value() == bytes);
}

RC_GTEST_PROP(SizeProperty, NoTextCrashesAndOnlyUsageIsAnswered, (const std::string& text)) {
  for (const auto& value : {parse_size(text), parse_share(text, 1000)}) {
    if (!value) {
      RC_ASSERT(value.error().code == Errc::usage);
    }
  }
}

RC_GTEST_PROP(SizeProperty, ASizeIsTheNumberTimesItsUnit, (std::uint32_t number)) {
  const std::string digits = std::to_string(number);
  std::uint64_t binary = 1;
  std::uint64_t decimal = 1;
  for (const char letter : std::string("KMG")) {
    binary *= 1024;
    decimal *= 1000;
    RC_ASSERT(parse_size(digits + letter).value() == number * binary);
    RC_ASSERT(parse_size(digits + letter + "iB").value() == number * binary);
    RC_ASSERT(parse_size(digits + letter + "B").value() == number * decimal);
  }
}

}  // namespace
}  // namespace ckpt::cli
