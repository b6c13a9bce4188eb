// What deletions rest on: the kept ones that are checked before anything goes.
#include "catalog/support.hpp"

#include <gtest/gtest.h>

#include "catalog/history.hpp"

namespace ckpt::catalog {
namespace {

Situation at_noon() {
  return {.now = kStart + kHour * 12};
}

Retention decided(const std::vector<Checkpoint>& all, const Policy& policy) {
  const auto plan = retain(all, policy, at_noon());
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : Retention{};
}

std::vector<std::uint64_t> steps_of(const std::vector<Checkpoint>& all, const std::vector<std::uint32_t>& indices) {
  std::vector<std::uint64_t> out;
  for (const std::uint32_t i : indices) out.push_back(all[i].step);
  return out;
}

std::vector<std::uint64_t> unsupported_steps(std::vector<Checkpoint> all, const Policy& policy,
                                             std::set<std::uint64_t> sure_steps) {
  const Retention plan = decided(all, policy);
  std::vector<bool> sure;
  for (const Checkpoint& one : all) sure.push_back(sure_steps.contains(one.step));
  const std::vector<Checkpoint> before = all;
  const auto out = unsupported(all, policy, at_noon(), plan, sure);
  EXPECT_TRUE(out);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].state, before[i].state) << "left as they were";
  return out ? steps_of(all, *out) : std::vector<std::uint64_t>{};
}

Rule every(std::uint64_t steps) {
  Rule out = rule(Rule::Kind::every_steps);
  out.step_interval = steps;
  return out;
}

TEST(Support, ARuleThatCountsSupportsAndOneOfExactStepsDoesNot) {
  const auto all = hourly({10, 15, 20, 25, 30, 35});
  const Policy both = policy({rule(Rule::Kind::last, 2), every(10)});
  EXPECT_EQ(steps_of(all, likely_support(all, both, decided(all, both))), (std::vector<std::uint64_t>{30, 35}));
}

TEST(Support, WithTheLastTwoSureNothingElseMatters) {
  const auto all = hourly({10, 15, 20, 25, 30, 35});
  EXPECT_TRUE(unsupported_steps(all, policy({rule(Rule::Kind::last, 2), every(10)}), {30, 35}).empty());
}

TEST(Support, OneOfTheLastTwoInDoubtIsMissedByTheNextOlder) {
  const auto all = hourly({10, 15, 20, 25, 30, 35});
  const Policy both = policy({rule(Rule::Kind::last, 2), every(10)});
  EXPECT_EQ(unsupported_steps(all, both, {35}), (std::vector<std::uint64_t>{25}));
  EXPECT_EQ(unsupported_steps(all, both, {30}), (std::vector<std::uint64_t>{25}));
}

TEST(Support, AnOlderSaveOfAStepIsMissedWhereTheNewerIsInDoubt) {
  auto all = hourly({10, 15, 20});
  all.push_back(saved(10, kHour * 4));
  all.back().id = "again";
  all.back().generation = 40;
  const Policy exact = policy({every(10)});
  ASSERT_EQ(trashed(decided(all, exact), all), (std::vector<std::uint64_t>{10, 15}));
  const Retention plan = decided(all, exact);
  std::vector<bool> sure(all.size(), true);
  EXPECT_TRUE(unsupported(all, exact, at_noon(), plan, sure)->empty());
  sure[3] = false;
  EXPECT_EQ(steps_of(all, *unsupported(all, exact, at_noon(), plan, sure)), (std::vector<std::uint64_t>{10}));
}

TEST(Support, WhatIsCorruptOrGoesSupportsNothing) {
  auto all = hourly({10, 20, 30, 40});
  all[3].state = State::corrupt;
  const Policy last = policy({rule(Rule::Kind::last, 2)});
  EXPECT_EQ(steps_of(all, likely_support(all, last, decided(all, last))), (std::vector<std::uint64_t>{20, 30}));
}

TEST(Support, ADemotionRestsOnTheNewestThatStaysWhole) {
  const auto all = hourly({10, 20, 30});
  Policy weights_only = policy({every(10)});
  weights_only.drop_optimizer_after = kMinute;
  ASSERT_EQ(steps_with(decided(all, weights_only), all, {Action::demote}), (std::vector<std::uint64_t>{10, 20}));
  EXPECT_TRUE(unsupported_steps(all, weights_only, {30}).empty());
  EXPECT_EQ(unsupported_steps(all, weights_only, {}), (std::vector<std::uint64_t>{20}));
}

}  // namespace
}  // namespace ckpt::catalog
