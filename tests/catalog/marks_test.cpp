#include "catalog/scan/marks.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "catalog/scan/utc.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"

namespace ckpt::catalog {
namespace {

const std::string kDirectory = "/run/step/marks";

class MarksTest : public testing::Test {
 protected:
  MarksTest() {
    disk_.put("/run/step/manifest.json", "{}");
    io_ = disk_.io();
  }
  Marks read() { return read_marks(*io_, kDirectory); }

  MemoryDisk disk_;
  std::unique_ptr<Io> io_;
};

TEST_F(MarksTest, AfterTheDirectoryFailedToSyncTheMarkIsInPlaceAndTheErrorSaysSo) {
  const Mark pin{.kind = Mark::Kind::pin, .name = "keep", .at = parse_time("2026-01-02T03:04:05.678Z")};
  ASSERT_TRUE(write_mark(*io_, kDirectory, pin));
  const auto plan = std::make_shared<FaultPlan>();
  const auto faulty = make_fault_io(disk_.io(), plan);
  plan->count_only({"fsync directory"});
  plan->fail_from(0, Errc::io);
  Mark other = pin;
  other.text = "changed";
  const auto written = write_mark(*faulty, kDirectory, other);
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, Errc::not_durable) << written.error().message;
  ASSERT_EQ(read().marks.size(), 1u);
  EXPECT_EQ(read().marks[0].text, "changed");
  const auto removed = remove_mark(*faulty, kDirectory, pin.kind, pin.name);
  ASSERT_FALSE(removed.has_value());
  EXPECT_EQ(removed.error().code, Errc::not_durable) << removed.error().message;
  EXPECT_TRUE(read().marks.empty());
}

TEST_F(MarksTest, ReadsBackEveryMemberOfEveryKind) {
  const Mark pin{.kind = Mark::Kind::pin,
                 .name = "paper \"v1\"\n../../etc",
                 .text = "cited",
                 .owner = "ana",
                 .at = parse_time("2026-01-02T03:04:05.678Z"),
                 .until = parse_time("2027-01-01")};
  ASSERT_TRUE(write_mark(*io_, kDirectory, pin));
  for (const double value : {1.5, -3.0, std::numeric_limits<double>::infinity()}) {
    const Mark metric{.kind = Mark::Kind::metric, .name = "loss", .value = value};
    ASSERT_TRUE(write_mark(*io_, kDirectory, metric));
    const Marks marks = read();
    EXPECT_EQ(marks.unreadable, "");
    ASSERT_EQ(marks.marks.size(), 2U) << "the later word replaces the earlier one";
    EXPECT_EQ(marks.marks[0].kind, Mark::Kind::metric);
    EXPECT_EQ(marks.marks[0].value, value);
    EXPECT_EQ(marks.marks[1].name, pin.name);
    EXPECT_EQ(marks.marks[1].text, pin.text);
    EXPECT_EQ(marks.marks[1].owner, pin.owner);
    EXPECT_EQ(marks.marks[1].at, pin.at);
    EXPECT_EQ(marks.marks[1].until, pin.until);
  }
  ASSERT_TRUE(write_mark(*io_, kDirectory, {.kind = Mark::Kind::metric, .name = "loss", .value = std::nan("")}));
  EXPECT_TRUE(std::isnan(read().marks[0].value));
  for (const std::string& name : disk_.tree())
    EXPECT_TRUE(name.starts_with("/run/")) << name << " lies outside the checkpoint";
}

TEST_F(MarksTest, WhatIsBeingDeletedTakesNoMarkAndLosesNone) {
  const Mark pin{.kind = Mark::Kind::pin, .name = "p"};
  ASSERT_TRUE(write_mark(*io_, kDirectory, pin));
  const auto deleter = disk_.io();
  const auto held = deleter->lock("/run/step", LockMode::exclusive);
  ASSERT_TRUE(held);
  for (const Mark::Kind kind :
       {Mark::Kind::pin, Mark::Kind::tag, Mark::Kind::metric, Mark::Kind::verified, Mark::Kind::restored}) {
    const auto written = write_mark(*io_, kDirectory, {.kind = kind, .name = "late"});
    ASSERT_FALSE(written);
    EXPECT_EQ(exit_code(written.error().code), 11);
  }
  EXPECT_EQ(remove_mark(*io_, kDirectory, Mark::Kind::pin, "p").error().code, Errc::locked);
  EXPECT_TRUE(write_mark(*io_, kDirectory, {.kind = Mark::Kind::note, .name = "by the holder"}, Holding::ours));
  EXPECT_EQ(read().marks.size(), 2U);
}

TEST_F(MarksTest, RemovesOneAndSaysWhetherItWasThere) {
  ASSERT_TRUE(write_mark(*io_, kDirectory, {.kind = Mark::Kind::tag, .name = "a"}));
  ASSERT_TRUE(write_mark(*io_, kDirectory, {.kind = Mark::Kind::tag, .name = "b"}));
  EXPECT_TRUE(remove_mark(*io_, kDirectory, Mark::Kind::tag, "a").value());
  EXPECT_FALSE(remove_mark(*io_, kDirectory, Mark::Kind::tag, "a").value());
  EXPECT_FALSE(remove_mark(*io_, kDirectory, Mark::Kind::pin, "b").value());
  ASSERT_EQ(read().marks.size(), 1U);
  EXPECT_EQ(read().marks[0].name, "b");
}

TEST_F(MarksTest, SaysSoWhereAMarkIsNotUnderstood) {
  EXPECT_EQ(read().unreadable, "") << "none were ever made";
  for (const char* text :
       {"", "{}", R"({"schema":"ckpt.mark/2","kind":"pin"})", R"({"schema":"ckpt.mark/1","kind":"x"})",
        R"({"schema":"ckpt.mark/1","kind":"pin","until":"soon"})",
        R"({"schema":"ckpt.mark/1","kind":"metric","value":"low"})"}) {
    disk_.put(kDirectory + "/pin-1.json", text);
    EXPECT_NE(read().unreadable, "") << text;
    EXPECT_TRUE(read().marks.empty()) << text;
  }
}

TEST_F(MarksTest, NoFlippedBitChangesWhatAPinSays) {
  const Mark pin{.kind = Mark::Kind::pin,
                 .name = "p",
                 .text = "t",
                 .owner = "o",
                 .at = parse_time("2026-01-02"),
                 .until = parse_time("2030-01-02")};
  const MarkFile file = mark_file(pin).value();
  for (std::size_t bit = 0; bit < file.text.size() * 8; ++bit) {
    std::string bad = file.text;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    disk_.put(kDirectory + "/" + file.name, bad);
    const Marks marks = read();
    EXPECT_NE(marks.unreadable.find(file.name), std::string::npos) << bad;
    EXPECT_TRUE(marks.marks.empty()) << bad;
  }
}

TEST_F(MarksTest, AMarkOfAnEarlierReleaseHasNoChecksumAndIsRead) {
  disk_.put(kDirectory + "/pin-1.json",
            R"({"schema":"ckpt.mark/1","kind":"pin","name":"p","text":"t","owner":"o","until":"2030-01-02T00:00:00Z"})"
            "\n");
  const Marks marks = read();
  EXPECT_EQ(marks.unreadable, "");
  ASSERT_EQ(marks.marks.size(), 1U);
  EXPECT_EQ(marks.marks[0].until, parse_time("2030-01-02"));
}

TEST_F(MarksTest, PassesOverWhatIsNoMark) {
  disk_.put(kDirectory + "/pin-1.json.tmp", "half");
  disk_.put(kDirectory + "/README", "words");
  EXPECT_EQ(read().unreadable, "");
  EXPECT_TRUE(read().marks.empty());
}

TEST_F(MarksTest, TakesTheSlowestRankOfASavesStatistics) {
  disk_.put(kDirectory + "/save-statistics.json",
            R"({"schema":"ckpt.save-statistics/1","slowest_rank":1,"ranks":[
            {"rank":0,"bytes":5,"plan_s":0.1,"stage_s":0.2,"write_s":1.5},
            {"rank":1,"bytes":5,"plan_s":0.3,"stage_s":0.4,"write_s":2.5}]})");
  const Marks marks = read();
  ASSERT_TRUE(marks.save);
  EXPECT_EQ(marks.save->ranks, 2U);
  EXPECT_EQ(marks.save->stage_s, 0.4);
  EXPECT_EQ(marks.save->write_s, 2.5);
}

TEST_F(MarksTest, RefusesWordsThatJsonCannotHold) {
  const auto written = write_mark(*io_, kDirectory, {.kind = Mark::Kind::tag, .name = "\xff"});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Errc::usage);
  EXPECT_EQ(write_mark(*io_, kDirectory, {.kind = Mark::Kind::tag, .name = std::string(5000, 'x')}).error().code,
            Errc::usage);
}

TEST(Marks, PowerLossAtAnyOperationLeavesTheOldMarkOrTheNew) {
  bool done = false;
  for (std::uint64_t n = 0; !done; ++n) {
    MemoryDisk disk;
    disk.put("/run/step/manifest.json", "{}");
    auto plan = std::make_shared<FaultPlan>();
    auto io = make_fault_io(disk.io(), plan);
    const Mark old{.kind = Mark::Kind::pin, .name = "p", .text = "old"};
    ASSERT_TRUE(write_mark(*io, kDirectory, old));
    plan->clear();
    plan->fail_from(plan->operation_count() + n, Errc::io);
    done = write_mark(*io, kDirectory, {.kind = Mark::Kind::pin, .name = "p", .text = "new"}).has_value();
    disk.power_off();
    auto after = disk.io();
    const Marks marks = read_marks(*after, kDirectory);
    EXPECT_EQ(marks.unreadable, "") << "operation " << n;
    ASSERT_EQ(marks.marks.size(), 1U) << "operation " << n;
    EXPECT_TRUE(marks.marks[0].text == "new" || (!done && marks.marks[0].text == "old"))
        << "operation " << n << ": " << marks.marks[0].text;
  }
}

TEST(TimeText, ReadsBackAndKnowsWhatIsNoTime) {
  for (const char* text : {"2026-01-02T03:04:05.678Z", "1970-01-01T00:00:00.000Z", "2024-02-29T23:59:59.999Z"})
    EXPECT_EQ(time_text(parse_time(text).value()), text);
  EXPECT_EQ(parse_time("2026-01-02"), parse_time("2026-01-02T00:00:00Z"));
  EXPECT_EQ(parse_time("2026-01-02T03:04:05.678999999Z"), parse_time("2026-01-02T03:04:05.678Z"));
  for (const char* text : {"", "2026", "2026-13-01", "2026-02-30", "2026-01-02 03:04:05Z", "2026-01-02T24:00:00Z",
                           "2026-01-02T03:04:05", "2026-01-02T03:04:05.Z", "2026-01-02T03:04:05.xZ", "0000-01-01"})
    EXPECT_FALSE(parse_time(text)) << text;
}

}  // namespace
}  // namespace ckpt::catalog
