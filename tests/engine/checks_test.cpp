// What a run checks of its source beside moving it: checksums over many reads, copies of the same values, and weights
// against what they were rounded from.
#include "engine/run/checks.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/run/run.hpp"
#include "format/model/cast.hpp"
#include "support/memory_io.hpp"
#include "support/thread_comm.hpp"

namespace ckpt::test {
namespace {

constexpr std::uint64_t kElements = 3'000'000;  // of the master: 12 MB, three leaves, in two parts at odd places
constexpr std::uint64_t kCut = 1'100'001;       // between the parts

/// A master in two parts of one file, one entry with a CRC-32 and padding behind; a bf16 weight that was rounded from
/// it, in two files with equal bytes.
class Checks : public testing::Test {
 protected:
  Checks() {
    values_.resize(kElements);
    for (std::uint64_t i = 0; i < kElements; ++i) values_[i] = static_cast<float>(i % 5003) / 3.0f - 700.0f;
    master_.assign(777, 'h');
    master_.append(reinterpret_cast<const char*>(values_.data()), 4 * kElements);
    master_.append(kPadding, 'p');
    weight_.resize(2 * kElements);
    CastCounts counts;
    cast(Dtype::f32, reinterpret_cast<const std::byte*>(values_.data()), Dtype::bf16,
         reinterpret_cast<std::byte*>(weight_.data()), kElements, counts);
    crc_ = {.begin = 777, .end = master_.size(), .value = crc32(0, std::as_bytes(std::span(master_)).subspan(777))};
    map_.tensors = {{.name = "w", .dtype = Dtype::bf16, .shape = {1000, 3000}},
                    {.name = "m", .dtype = Dtype::f32, .shape = {1000, 3000}, .role = Role::slot}};
    map_.files = {{.path = "master", .bytes = master_.size()}, {.path = "one"}, {.path = "two"}};
    map_.files[1].bytes = map_.files[2].bytes = 64 + weight_.size();
    ChunkTable table(2);
    const Box whole = Box::whole({1000, 3000});
    table.add(1, {1000, 3000}, {whole, Extent{0, kCut}}, {.file = 0, .offset = 777, .crc = crc_});
    table.add(1, {1000, 3000}, {whole, Extent{kCut, kElements}}, {.file = 0, .offset = 777 + 4 * kCut, .crc = crc_});
    for (const std::uint32_t file : {1u, 2u}) {
      table.add(0, {1000, 3000}, {whole, {}}, {.file = file, .offset = 64, .dtype = Dtype::bf16});
    }
    table.seal();
    map_.index = std::make_shared<ChunkTable>(std::move(table));
    second_ = weight_;
  }

  struct Outcome {
    RunReport report;
    std::vector<Discrepancy> found;
    Result<> result;
  };
  Outcome run_with(std::vector<Placement> placements, unsigned workers, bool listen) {
    disk_.put("/s/master", master_);
    disk_.put("/s/one", std::string(64, 'h') + weight_);
    disk_.put("/s/two", std::string(64, 'h') + second_);
    TargetFile file;
    for (Placement& placement : placements) {
      placement.offset = file.bytes;
      file.bytes += placement.bytes;
      file.placements.push_back(std::move(placement));
    }
    Outcome out;
    const auto plan = Plan::make(map_, {file}, {.check_replicas = true});
    EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
    std::mutex mutex;
    RunOptions options{.source_root = "/s", .workers = workers};
    options.pool_bytes = smallest_pool_bytes(workers);
    if (listen) {
      options.found = [&](const Discrepancy& one) {
        const std::lock_guard lock(mutex);
        out.found.push_back(one);
        return Result<>();
      };
    }
    const auto io = disk_.io();
    const auto solo = Comm::solo();
    auto report = run(*plan, *io, *solo, options);
    if (report) {
      out.report = *std::move(report);
    } else {
      out.result = fail(std::move(report).error());
    }
    return out;
  }
  static Placement master() { return {.bytes = 4 * kElements, .tensor = 1, .dtype = Dtype::f32}; }
  static Placement master_and_weight() {
    Placement out = master();
    out.twin = 0;
    return out;
  }

  static constexpr std::uint64_t kPadding = 300;
  std::vector<float> values_;
  std::string master_;
  std::string weight_;
  std::string second_;
  Crc crc_{};
  Map map_;
  MemoryDisk disk_;
};

TEST_F(Checks, AnEntryOfManyReadsIsCheckedOnceWhateverTheWorkers) {
  for (const unsigned workers : {1u, 3u}) {
    const Outcome done = run_with({master()}, workers, false);
    ASSERT_TRUE(done.result) << done.result.error().message;
    EXPECT_EQ(done.report.crc_checked, 1u);
    EXPECT_EQ(done.report.crc_unread, 0u);
    EXPECT_LT(done.report.read_bytes, 4 * kElements + (std::uint64_t{1} << 20)) << "something was read twice";
  }
}

TEST_F(Checks, AFlippedBitAnywhereInALongEntryEndsTheRunAsAChecksum) {
  for (const std::uint64_t at : {std::uint64_t{777}, 777 + 4 * kCut - 1, std::uint64_t{master_.size() - kPadding - 1},
                                 std::uint64_t{master_.size() - 1}}) {
    master_[at] = static_cast<char>(master_[at] ^ 1);
    const Outcome done = run_with({master()}, 2, false);
    ASSERT_FALSE(done.result) << at;
    EXPECT_EQ(done.result.error().code, Errc::checksum);
    EXPECT_EQ(done.result.error().file, "/s/master");
    EXPECT_EQ(done.result.error().offset, 777u);
    EXPECT_EQ(done.result.error().tensor, "m");
    master_[at] = static_cast<char>(master_[at] ^ 1);
  }
}

TEST_F(Checks, AnEntryThatRanksDivideIsJoinedOnRankZeroAndItsDamageIsEveryonesVerdict) {
  for (const bool damaged : {false, true}) {
    if (damaged) master_[2'000'000] = static_cast<char>(master_[2'000'000] ^ 1);
    disk_.put("/s/master", master_);
    TargetFile file{.bytes = 4 * kElements, .placements = {master()}};
    const auto plan = Plan::make(map_, {file});
    ASSERT_TRUE(plan);
    std::mutex mutex;
    std::uint64_t checked = 0;
    std::uint64_t unread = 0;
    unsigned failed = 0;
    ThreadRanks(3).run([&](Comm& comm) {
      const auto io = disk_.io();
      RunOptions options{.source_root = "/s"};
      options.pool_bytes = smallest_pool_bytes(1);
      const auto report = run(*plan, *io, comm, options);
      const std::lock_guard lock(mutex);
      checked += report ? report->crc_checked : 0;
      unread += report ? report->crc_unread : 0;
      failed += report ? 0u : 1u;
      if (!report && comm.is_root()) {
        EXPECT_EQ(report.error().code, Errc::checksum);
        EXPECT_EQ(report.error().file, "/s/master");
      }
    });
    EXPECT_EQ(failed, damaged ? 3u : 0u);
    EXPECT_EQ(checked, damaged ? 0u : 1u);
    EXPECT_EQ(unread, 0u);
  }
}

TEST_F(Checks, AnEntryOfWhichOnlyAPartIsNeededCountsAsUnread) {
  Placement rows{.bytes = 4 * 3000, .tensor = 1, .chunk = Chunk{{{10, 0}, {1, 3000}}, {}}, .dtype = Dtype::f32};
  const Outcome done = run_with({rows}, 1, false);
  ASSERT_TRUE(done.result) << done.result.error().message;
  EXPECT_EQ(done.report.crc_checked, 0u);
  EXPECT_EQ(done.report.crc_unread, 1u);
}

TEST_F(Checks, WeightsThatWereRoundedFromTheirMasterPassInEveryCopy) {
  const Outcome done = run_with({master_and_weight()}, 2, true);
  ASSERT_TRUE(done.result) << done.result.error().message;
  EXPECT_TRUE(done.found.empty());
  EXPECT_EQ(done.report.compared_bytes, 2 * 4 * kElements);
}

TEST_F(Checks, AMasterThatRoundsElsewhereIsFoundAtItsElement) {
  const std::uint64_t element = 2'500'000;
  master_[777 + 4 * element + 2] = static_cast<char>(master_[777 + 4 * element + 2] ^ 0x40);
  const Outcome done = run_with({master_and_weight()}, 1, true);
  ASSERT_TRUE(done.result);
  unsigned values = 0;
  for (const Discrepancy& one : done.found) {
    if (one.kind != Discrepancy::Kind::values) continue;
    ++values;
    EXPECT_EQ(one.elements, 1u);
    EXPECT_EQ(one.tensor, 0u);
    EXPECT_EQ(one.offset, 64 + 2 * element);
    EXPECT_EQ(one.leaf * kLeafBytes + one.leaf_offset, 4 * element);
  }
  EXPECT_EQ(values, 2u) << "one of each copy of the weight";
}

TEST_F(Checks, AMasterThatRoundsToTheSameWeightIsNoDifference) {
  master_[777] = static_cast<char>(master_[777] ^ 1);  // the lowest bit of a fraction of 23
  const Outcome done = run_with({master_and_weight()}, 1, true);
  ASSERT_TRUE(done.result);
  for (const Discrepancy& one : done.found) EXPECT_EQ(one.kind, Discrepancy::Kind::checksum);
}

TEST_F(Checks, ACopyThatDiffersIsFoundWithItsFileAndPlace) {
  second_[4'000'001] = static_cast<char>(second_[4'000'001] ^ 1);
  const Placement weight{.bytes = 2 * kElements, .tensor = 0, .dtype = Dtype::bf16};
  const Outcome done = run_with({weight}, 2, true);
  ASSERT_TRUE(done.result);
  ASSERT_EQ(done.found.size(), 1u);
  EXPECT_EQ(done.found[0].file, 2u);
  EXPECT_EQ(done.found[0].offset, 64 + 4'000'000u);
  EXPECT_EQ(done.found[0].elements, 1u);
  const Outcome ended = run_with({weight}, 2, false);
  ASSERT_FALSE(ended.result);
  EXPECT_EQ(ended.result.error().code, Errc::corrupt);
  EXPECT_EQ(ended.result.error().file, "/s/two");
}

TEST_F(Checks, NaNsOfAnyPayloadRoundToEachOther) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(master_.data() + 777 + 40, &nan, 4);
  const std::uint16_t other = 0x7fff;
  std::memcpy(weight_.data() + 20, &other, 2);
  second_ = weight_;
  const Outcome done = run_with({master_and_weight()}, 1, true);
  ASSERT_TRUE(done.result);
  for (const Discrepancy& one : done.found) EXPECT_EQ(one.kind, Discrepancy::Kind::checksum);
}

TEST_F(Checks, ATwinOfAnotherShapeIsRefused) {
  map_.tensors[0].shape = {3000, 1000};
  TargetFile file{.bytes = 4 * kElements, .placements = {master_and_weight()}};
  EXPECT_FALSE(Plan::make(map_, {file}));
}

}  // namespace
}  // namespace ckpt::test
