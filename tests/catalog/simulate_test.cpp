// A policy tried on a run that saves at regular steps.
#include "catalog/simulate.hpp"

#include <gtest/gtest.h>

#include "catalog/history.hpp"

namespace ckpt::catalog {
namespace {

constexpr std::uint64_t kSize = 700;

Schedule schedule(std::uint64_t until = 1000) {
  return {.interval = 100, .until = until, .step_time = kMinute, .bytes = kSize, .optimizer_bytes = 600};
}

Simulation simulated(Policy policy, const Schedule& plan = schedule()) {
  const auto out = simulate(policy, plan);
  EXPECT_TRUE(out) << out.error().message;
  return out ? *out : Simulation{};
}

Policy last(std::uint64_t count, Duration ttl) {
  Policy out = policy({rule(Rule::Kind::last, count)});
  out.trash.ttl = ttl;
  return out;
}

TEST(Simulate, TheLastThreeWithoutATrashPeakAtFour) {
  const Simulation outcome = simulated(last(3, {}));
  EXPECT_EQ(outcome.saves, 10U);
  EXPECT_EQ(outcome.trashed, 7U);
  EXPECT_EQ(outcome.kept, 3U);
  EXPECT_EQ(outcome.kept_bytes, 3 * kSize);
  EXPECT_EQ(outcome.peak_bytes, 4 * kSize) << "the next is saved before the oldest goes";
  EXPECT_EQ(outcome.peak_step, 400U);
  EXPECT_EQ(outcome.worst_gap, 800U) << "nothing is left of the first 800 steps";
  EXPECT_EQ(outcome.worst_loss, 100U);
  EXPECT_EQ(outcome.worst_rework, 200U);
}

TEST(Simulate, TenMomentsShowWhatIsKept) {
  Policy demoting = last(2, {});
  demoting.keep.front().count.reset();
  demoting.drop_optimizer_after = Duration{};
  const Simulation outcome = simulated(demoting, schedule(10'000));
  ASSERT_EQ(outcome.moments.size(), kMoments);
  EXPECT_EQ(outcome.moments.front().step, 1000U);
  EXPECT_EQ(outcome.moments.back().step, 10'000U);
  EXPECT_EQ(outcome.moments.back().bytes, outcome.kept_bytes);
  ASSERT_EQ(outcome.moments.back().kept.size(), 100U);
  EXPECT_TRUE(outcome.moments.back().kept.front().weights_only);
  EXPECT_FALSE(outcome.moments.back().kept.back().weights_only) << "the newest is never demoted";
  EXPECT_EQ(simulated(last(3, {}), schedule(300)).moments.size(), 3U) << "fewer saves";
}

TEST(Simulate, WhatLiesInTheTrashTakesSpaceUntilItsGraceIsOver) {
  // A save every 100 minutes, kept in the trash for 250: two or three of them at once.
  EXPECT_EQ(simulated(last(3, kMinute * 250)).peak_bytes, (4 + 2) * kSize);
  EXPECT_EQ(simulated(last(3, kHour * 1000)).peak_bytes, 10 * kSize) << "nothing is purged before the end";
}

Policy recycling(Policy policy, std::uint64_t sets) {
  policy.trash.recycle = sets;
  return policy;
}

TEST(Simulate, WhatIsRetiredFeedsTheNextSave) {
  // The first four saves find nothing; from the fifth on each is written into what was retired just before.
  const Simulation outcome = simulated(recycling(last(3, kHour * 1000), 1));
  EXPECT_EQ(outcome.peak_bytes, 4 * kSize);
  EXPECT_EQ(outcome.peak_step, 400U);
  EXPECT_EQ(outcome.reused_bytes, 6 * kSize);
  EXPECT_EQ(outcome.trashed, 7U);
  EXPECT_EQ(simulated(last(3, kHour * 1000)).reused_bytes, 0U);
}

TEST(Simulate, OfWhatIsRetiredAtOnceOnlyTheYoungestHasNoGrace) {
  // From the fifth save on two sets go at a time: the optimizer of one, and of an older one the weights.
  Policy two = recycling(last(4, kHour * 1000), 1);
  two.drop_optimizer_after = kMinute * 150;
  Simulation outcome = simulated(two);
  EXPECT_EQ(outcome.reused_bytes, 7 * 600U);
  EXPECT_EQ(outcome.peak_bytes, 3 * kSize + 2 * 100 + 5 * 100) << "the weights wait in the trash";
  two.trash.ttl = {};
  outcome = simulated(two);
  EXPECT_EQ(outcome.reused_bytes, 7 * 600U) << "what is over makes way for what is younger";
  EXPECT_EQ(outcome.peak_bytes, 3 * kSize + 2 * 100);
  outcome = simulated(recycling(two, 2));
  EXPECT_EQ(outcome.reused_bytes, 7 * 600U + 5 * 100);
  EXPECT_EQ(outcome.peak_bytes, 3 * kSize + 2 * 100);
}

TEST(Simulate, OptimizersThatAreDroppedFeedOptimizersOnly) {
  Policy weights = recycling(policy({rule(Rule::Kind::last)}), 3);
  weights.drop_optimizer_after = kMinute * 150;
  const Simulation outcome = simulated(weights);
  EXPECT_EQ(outcome.demoted, 8U);
  EXPECT_EQ(outcome.reused_bytes, 7 * 600U) << "nobody saves after the last one";
  EXPECT_EQ(outcome.peak_bytes, 3 * kSize + 7 * 100);
}

TEST(Simulate, WithOneCheckpointALossIsALossOfEverything) {
  const Simulation outcome = simulated(last(1, {}));
  EXPECT_EQ(outcome.worst_loss, 1000U);
  EXPECT_EQ(outcome.worst_loss_step, 1000U);
  EXPECT_EQ(outcome.worst_rework, 1100U);
}

TEST(Simulate, OldOnesAreReducedToWeights) {
  Policy weights = policy({rule(Rule::Kind::last)});
  weights.drop_optimizer_after = kMinute * 150;
  weights.trash.ttl = {};
  const Simulation outcome = simulated(weights);
  EXPECT_EQ(outcome.trashed, 0U);
  EXPECT_EQ(outcome.demoted, 8U);
  EXPECT_EQ(outcome.kept_bytes, 2 * kSize + 8 * 100);
}

TEST(Simulate, TheLastStepNeedsNotBeOneOfASave) {
  EXPECT_EQ(simulated(last(3, {}), schedule(1099)).saves, 10U);
  EXPECT_EQ(simulated(last(3, {}), schedule(100)).saves, 1U);
}

TEST(Simulate, ASizeThatCannotBeAddedUpIsHeldAtTheMost) {
  Schedule vast = schedule();
  vast.bytes = UINT64_MAX / 2;
  EXPECT_EQ(simulated(last(3, {}), vast).peak_bytes, UINT64_MAX);
}

TEST(Simulate, WhatCannotBeSimulatedIsRefused) {
  const Policy policy = last(3, {});
  for (const Schedule& wrong : {Schedule{.interval = 0, .until = 10}, Schedule{.interval = 11, .until = 10},
                                Schedule{.interval = 1, .until = kMostSimulatedSaves + 1},
                                Schedule{.interval = UINT64_MAX / 4, .until = UINT64_MAX - 1, .step_time = kHour}}) {
    const auto out = simulate(policy, wrong);
    ASSERT_FALSE(out);
    EXPECT_EQ(out.error().code, Errc::usage);
  }
  EXPECT_EQ(simulate(Policy{}, schedule()).error().code, Errc::usage) << "an empty policy";
}

}  // namespace
}  // namespace ckpt::catalog
