#include "cli/output/progress.hpp"

#include <gtest/gtest.h>

#include "format/text/json.hpp"

namespace ckpt::cli {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TEST(ProgressMode, AutoNeedsATerminalOnStandardErrorAndQuietSilencesIt) {
  EXPECT_EQ(progress_mode("auto", false, true), ProgressMode::bar);
  EXPECT_EQ(progress_mode("", false, false), ProgressMode::plain);
  EXPECT_EQ(progress_mode("auto", true, true), ProgressMode::none);
  EXPECT_EQ(progress_mode("plain", true, true), ProgressMode::plain);
  EXPECT_EQ(progress_mode("bar", false, false), ProgressMode::bar);
  EXPECT_EQ(progress_mode("json", false, true), ProgressMode::json);
}

TEST(Meter, RateIsOfTheLastTenSecondsAndMeanOfThePhase) {
  Meter meter;
  double now = 100;
  std::uint64_t done = 0;
  meter.update({"copy", 0, 100 * kGiB}, now);
  for (int i = 0; i < 200; ++i) meter.update({"copy", done += kGiB / 10, 100 * kGiB}, now += 0.1);  // 1 GiB/s, 20 s
  for (int i = 0; i < 200; ++i) meter.update({"copy", done += kGiB / 5, 100 * kGiB}, now += 0.1);   // 2 GiB/s, 20 s
  const Reading reading = meter.read(now);
  EXPECT_NEAR(reading.rate / static_cast<double>(kGiB), 2.0, 0.01);
  EXPECT_NEAR(reading.mean / static_cast<double>(kGiB), 1.5, 0.01);
  ASSERT_TRUE(reading.eta_s);
  EXPECT_NEAR(*reading.eta_s, 20.0, 0.2);  // 40 GiB at the rate of now, not at the mean
}

TEST(Meter, AStalledDiskShowsAsAFallingRate) {
  Meter meter;
  meter.update({"copy", 0, 100}, 0);
  meter.update({"copy", 50, 100}, 1);
  EXPECT_NEAR(meter.read(2).rate, 25, 0.01);
  EXPECT_NEAR(meter.read(50).rate, 1, 0.01);
}

TEST(Meter, ANewPhaseStartsAfreshAndNothingMovedMeansNoForecast) {
  Meter meter;
  EXPECT_FALSE(meter.started());
  meter.update({"copy", 0, 100}, 0);
  meter.update({"copy", 100, 100}, 10);
  EXPECT_EQ(meter.read(10).eta_s, 0);
  meter.update({"verify", 0, 100}, 10);
  const Reading reading = meter.read(12);
  EXPECT_EQ(reading.phase, "verify");
  EXPECT_EQ(reading.elapsed_s, 2);
  EXPECT_EQ(reading.rate, 0);
  EXPECT_EQ(reading.eta_s, std::nullopt);
}

Reading sample() {
  return {.phase = "read+convert",
          .done_bytes = 9'996'000'000,
          .total_bytes = 16'063'000'000,
          .elapsed_s = 5,
          .rate = 2.1 * static_cast<double>(kGiB),
          .mean = 1.9 * static_cast<double>(kGiB),
          .eta_s = 2.8};
}

TEST(PlainLine, IsOneWholeLineWithoutCarriageReturn) {
  EXPECT_EQ(plain_line(sample(), SizeStyle::binary),
            "ckpt: read+convert 62 %, 9.3/15.0 GiB, 2.10 GiB/s (mean 1.90 GiB/s), ETA 0:03");
}

TEST(Progress, OfSeveralCheckpointsSaysWhichOneAndEachStartsAfresh) {
  Meter meter;
  meter.update({.phase = "verify", .done_bytes = 90, .total_bytes = 100, .item = 1, .items = 15}, 0);
  meter.update({.phase = "verify", .done_bytes = 95, .total_bytes = 100, .name = "llama@5", .item = 2, .items = 15},
               10);
  const Reading reading = meter.read(10);
  EXPECT_EQ(reading.elapsed_s, 0);
  EXPECT_EQ(plain_line(reading, SizeStyle::binary).find("ckpt: verify 2 of 15 95 %, "), 0u);
  EXPECT_EQ(bar_line(reading, SizeStyle::binary, 80).find(" verify 2 of 15  95 % "), 0u);
  EXPECT_NE(json_line(reading).find(R"("name":"llama@5","item":2,"items":15})"), std::string::npos);
  EXPECT_EQ(json_line(sample()).find("item"), std::string::npos);
}

TEST(BarLine, NeverReachesTheLastColumnAndDropsTheLeastUsefulFirst) {
  for (std::size_t width = 20; width < 140; ++width)
    EXPECT_LT(text_width(bar_line(sample(), SizeStyle::binary, width)), width) << width;
  EXPECT_NE(bar_line(sample(), SizeStyle::binary, 120).find("mean"), std::string::npos);
  EXPECT_EQ(bar_line(sample(), SizeStyle::binary, 90).find("mean"), std::string::npos);
  EXPECT_NE(bar_line(sample(), SizeStyle::binary, 50).find("ETA 0:03"), std::string::npos);
}

TEST(BarLine, HasATrackAndTheNameWhereThereIsRoom) {
  Reading reading = sample();
  EXPECT_NE(bar_line(reading, SizeStyle::binary, 90).find("██████████████░░░░░░░░░░"), std::string::npos);
  reading.name = "model.layers.17.mlp.up_proj.weight";
  for (std::size_t width = 20; width < 160; ++width)
    EXPECT_LT(text_width(bar_line(reading, SizeStyle::binary, width)), width) << width;
  EXPECT_NE(bar_line(reading, SizeStyle::binary, 150).find("   model.layers.17.mlp.up_proj.weight"), std::string::npos);
  EXPECT_NE(bar_line(reading, SizeStyle::binary, 100).find("…"), std::string::npos) << "the name comes before the mean";
  EXPECT_EQ(bar_line(reading, SizeStyle::binary, 80).find("weight"), std::string::npos);
  EXPECT_NE(bar_line(reading, SizeStyle::binary, 80).find("█"), std::string::npos) << "a short bar beside the rate";
  EXPECT_NE(plain_line(reading, SizeStyle::binary).find(", model.layers.17.mlp.up_proj.weight"), std::string::npos);
}

TEST(Percent, IsAHundredOnlyWhenAllIsDone) {
  Reading reading = sample();
  reading.done_bytes = reading.total_bytes - 1;
  EXPECT_NE(plain_line(reading, SizeStyle::binary).find(" 99 %"), std::string::npos);
  reading.done_bytes = reading.total_bytes;
  EXPECT_NE(plain_line(reading, SizeStyle::binary).find(" 100 %"), std::string::npos);
}

TEST(JsonLine, IsOneObjectOnOneLineWithNullForAnUnknownEnd) {
  Reading reading = sample();
  reading.eta_s.reset();
  const std::string line = json_line(reading);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = json::parse(line);
  ASSERT_TRUE(json) << line;
  EXPECT_EQ(*json->find("schema")->text(), "ckpt.progress/1");
  EXPECT_EQ(*json->find("done_bytes")->natural(), 9'996'000'000u);
  EXPECT_TRUE(std::holds_alternative<std::nullptr_t>(json->find("eta_s")->v));
}

}  // namespace
}  // namespace ckpt::cli
