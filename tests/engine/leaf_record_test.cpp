// The record of finished leaves: what it says, to whom, and what of it survives.
#include "engine/run/leaf_record.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "support/fault_io.hpp"
#include "support/memory_io.hpp"

namespace ckpt {
namespace {

constexpr auto kAtOnce = std::chrono::milliseconds(0);
constexpr auto kNever = std::chrono::hours(24 * 365 * 100);  // longer than any machine has been up

class LeafRecord : public testing::Test {
 protected:
  void SetUp() override {
    disk_.put("/d/other", "other");
    ASSERT_TRUE(make_record(*io_, path_, key_));
  }
  static RecordedLeaf leaf(const std::string& text, std::uint64_t count = 0) {
    return {.hash = hash128(text),
            .casts = {.overflowed = count, .became_nan = 2 * count},
            .crc_checked = 3 * count,
            .reader = static_cast<std::uint32_t>(5 * count)};
  }
  std::vector<RecordedLeaf> read() { return read(key_); }
  std::vector<RecordedLeaf> read(const RecordKey& key) {
    auto leaves = read_record(*io_, path_, key);
    EXPECT_TRUE(leaves) << leaves.error().message;
    return leaves.value_or(std::vector<RecordedLeaf>());
  }

  const RecordKey key_{.id = "abc", .plan = hash128("plan"), .inode = 7, .leaves = 1000};
  const std::string path_ = record_path("/d/m.partial-abc");
  MemoryDisk disk_{};
  std::unique_ptr<Io> io_ = disk_.io();
};

TEST_F(LeafRecord, SaysOfEachLeafWhatWasToldOfItAndNothingOfTheOthers) {
  for (const RecordedLeaf& each : read()) EXPECT_FALSE(each.is_finished());
  LeafRecorder recorder(*io_, path_, kAtOnce);
  ASSERT_TRUE(recorder.finished(999, leaf("last", 1)));
  ASSERT_TRUE(recorder.finished(0, leaf("first", 4'000'000)));
  ASSERT_TRUE(recorder.close());
  const auto leaves = read();
  ASSERT_EQ(leaves.size(), 1000U);
  EXPECT_EQ(leaves[0].hash, hash128("first"));
  EXPECT_EQ(leaves[0].casts.overflowed, 4'000'000U);
  EXPECT_EQ(leaves[0].casts.became_nan, 8'000'000U);
  EXPECT_EQ(leaves[0].crc_checked, 12'000'000U);
  EXPECT_EQ(leaves[0].reader, 20'000'000U);
  EXPECT_EQ(leaves[999].hash, hash128("last"));
  for (std::size_t i = 1; i < 999; ++i) EXPECT_FALSE(leaves[i].is_finished()) << i;
}

TEST_F(LeafRecord, IsOfOneConversionOnePlanOnePartialOnly) {
  LeafRecorder recorder(*io_, path_, kAtOnce);
  ASSERT_TRUE(recorder.finished(3, leaf("a")));
  ASSERT_TRUE(recorder.close());
  EXPECT_EQ(read().size(), 1000U);
  RecordKey other = key_;
  other.id = "abd";
  EXPECT_TRUE(read(other).empty());
  other = key_;
  other.plan = hash128("another plan");
  EXPECT_TRUE(read(other).empty());
  other = key_;
  other.inode = 8;
  EXPECT_TRUE(read(other).empty());
  other = key_;
  other.leaves = 999;
  EXPECT_TRUE(read(other).empty());
  ASSERT_TRUE(remove_record(*io_, path_));
  EXPECT_TRUE(read().empty());
  EXPECT_TRUE(remove_record(*io_, path_)) << "there is none to remove";
}

TEST_F(LeafRecord, WritesFirstAtOnceThenRarelyAndNeighboursTogether) {
  const auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"write"});
  const auto counted = make_fault_io(disk_.io(), plan);
  LeafRecorder recorder(*counted, path_, kNever);
  ASSERT_TRUE(recorder.finished(5, leaf("5")));
  EXPECT_EQ(plan->operation_count(), 1U);
  for (const std::uint64_t i : {7U, 6U, 8U, 20U}) ASSERT_TRUE(recorder.finished(i, leaf(std::to_string(i))));
  EXPECT_EQ(plan->operation_count(), 1U) << "written too early";
  EXPECT_FALSE(read()[6].is_finished());
  ASSERT_TRUE(recorder.close());
  EXPECT_EQ(plan->operation_count(), 3U) << "6 to 8, and 20";
  const auto leaves = read();
  for (const std::size_t i : {5U, 6U, 7U, 8U, 20U}) EXPECT_EQ(leaves[i].hash, hash128(std::to_string(i))) << i;
}

TEST_F(LeafRecord, OneThatSomebodyRemovedStopsNobody) {
  ASSERT_TRUE(remove_record(*io_, path_));
  LeafRecorder recorder(*io_, path_, kAtOnce);
  EXPECT_TRUE(recorder.finished(1, leaf("a")));
  EXPECT_TRUE(recorder.finished(2, leaf("b")));
  EXPECT_TRUE(recorder.close());
  EXPECT_TRUE(read().empty());
}

TEST_F(LeafRecord, BytesOfAnotherKindAreNoRecord) {
  disk_.put(path_, std::string(static_cast<std::size_t>(record_bytes(key_.leaves)), '\xff'));
  EXPECT_TRUE(read().empty());
  disk_.put(path_, "short");
  EXPECT_TRUE(read().empty());
  ASSERT_TRUE(make_record(*io_, path_, key_)) << "what stands there is replaced";
  EXPECT_EQ(read().size(), 1000U);
}

}  // namespace
}  // namespace ckpt
