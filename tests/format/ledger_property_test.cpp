// However the number of ranks changes, every sample of an epoch is read exactly once, and in the same way each time.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "format/universal/ledger.hpp"

namespace ckpt::ledger {
namespace {

/// Times each sample was read; shards one after the other.
class Tally {
 public:
  explicit Tally(const Ledger& ledger) : counts_(static_cast<std::size_t>(ledger.samples), 0) {
    std::uint64_t at = 0;
    for (const Shard& shard : ledger.shards) {
      begins_.push_back(at);
      at += shard.samples;
    }
    if (begins_.empty()) begins_.push_back(0);
  }
  void read(const std::vector<Range>& ranges) {
    for (const Range& range : ranges) {
      for (std::uint64_t i = range.begin; i < range.end; ++i)
        ++counts_[static_cast<std::size_t>(begins_[range.shard] + i)];
    }
  }
  bool all_once() const {
    return std::all_of(counts_.begin(), counts_.end(), [](int n) { return n == 1; });
  }

 private:
  std::vector<std::uint64_t> begins_;
  std::vector<int> counts_;
};

/// Reads `steps` steps on all ranks.
Ledger train(Ledger ledger, std::uint64_t steps, Tally& tally) {
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (std::uint64_t rank = 0; rank < ledger.world; ++rank) tally.read(share_of(ledger, rank, step));
  }
  return advance(std::move(ledger), steps);
}

Ledger any_ledger(std::uint64_t world) {
  const auto batch = *rc::gen::inRange<std::uint64_t>(12, 40);
  if (*rc::gen::arbitrary<bool>()) {
    return *begin_global(0, 1, *rc::gen::inRange<std::uint64_t>(0, 500), batch, world);
  }
  std::vector<Shard> shards;
  for (const auto samples : *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(0, 100))) {
    shards.push_back({"s" + std::to_string(shards.size()), samples});
  }
  return *begin_sharded(0, 1, std::move(shards), batch, world);
}

RC_GTEST_PROP(LedgerProperty, EverySampleIsReadOnceOverAnyChangesOfRanks, ()) {
  const auto world = rc::gen::inRange<std::uint64_t>(1, 13);
  Ledger ledger = any_ledger(*world);
  Tally tally(ledger);
  const auto changes = *rc::gen::inRange(0, 4);
  for (int i = 0; i < changes; ++i) {
    ledger = train(ledger, *rc::gen::inRange<std::uint64_t>(0, 6), tally);
    RC_ASSERT(check(ledger).has_value());
    const auto next = *world;
    const auto remapped = remap(ledger, next);
    RC_ASSERT(remapped.has_value());
    RC_ASSERT(*remapped == *remap(*parse(build(ledger)), next));  // in the same way each time, through the text too
    RC_ASSERT(remapped->consumed == ledger.consumed);
    RC_ASSERT(check(*remapped).has_value());
    ledger = *remapped;
  }
  ledger = train(ledger, steps_left(ledger), tally);
  RC_ASSERT(tally.all_once());
  RC_ASSERT(ledger.consumed == ledger.samples);
  RC_ASSERT(steps_left(ledger) == 0U);
}

RC_GTEST_PROP(LedgerProperty, AGlobalBatchIsTheSameOverAnyNumberOfRanks, ()) {
  const auto before = *begin_global(0, 1, *rc::gen::inRange<std::uint64_t>(0, 500), 24, 12);
  const auto after = *remap(before, *rc::gen::inRange<std::uint64_t>(1, 13));
  RC_ASSERT(steps_left(before) == steps_left(after));
  const auto batch = [](const Ledger& ledger, std::uint64_t step) {
    std::vector<std::uint64_t> samples;
    for (std::uint64_t rank = 0; rank < ledger.world; ++rank) {
      for (const Range& range : share_of(ledger, rank, step)) {
        for (std::uint64_t i = range.begin; i < range.end; ++i) samples.push_back(i);
      }
    }
    return samples;
  };
  for (std::uint64_t step = 0; step <= steps_left(before); ++step) RC_ASSERT(batch(before, step) == batch(after, step));
}

RC_GTEST_PROP(LedgerProperty, RanksShareWhatIsLeftEvenly, ()) {
  const auto ledger = *remap(any_ledger(12), *rc::gen::inRange<std::uint64_t>(1, 13));
  if (ledger.order == Order::global) return;
  std::uint64_t least = UINT64_MAX;
  std::uint64_t most = 0;
  for (const RankShare& share : ledger.ranks) {
    std::uint64_t size = 0;
    for (const Range& range : share.ranges) size += range.size();
    least = std::min(least, size);
    most = std::max(most, size);
  }
  RC_ASSERT(most - least <= 1U);
}

TEST(LedgerLimits, HugeEpochsDoNotOverflow) {
  Ledger ledger = *begin_global(0, 0, UINT64_MAX, UINT64_MAX, 3);
  EXPECT_EQ(steps_left(ledger), 1U);
  EXPECT_EQ(share_of(ledger, 2, 0).front().end, UINT64_MAX);
  EXPECT_EQ(advance(ledger, 7).consumed, UINT64_MAX);
  ledger = *begin_sharded(0, 0, {{"a", UINT64_MAX - 1}, {"b", 1}}, 5, 2);
  EXPECT_TRUE(check(ledger));
  EXPECT_EQ(share_of(ledger, 1, steps_left(ledger)).size(), 0U);
  EXPECT_EQ(advance(ledger, UINT64_MAX).consumed, UINT64_MAX);
  EXPECT_TRUE(check(*remap(advance(ledger, 11), 5)));
}

}  // namespace
}  // namespace ckpt::ledger
