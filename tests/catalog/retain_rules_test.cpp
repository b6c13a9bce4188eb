// What each rule keeps, at its edges.
#include <gtest/gtest.h>

#include <cmath>

#include "catalog/history.hpp"

namespace ckpt::catalog {
namespace {

using Steps = std::vector<std::uint64_t>;
using Kind = Rule::Kind;

/// The steps that one rule keeps, without what guards add.
Steps by_rule(const Rule& rule, const std::vector<Checkpoint>& all, Time now = kStart + kDay * 400,
              bool exclusive = false) {
  Policy one = policy({rule});
  one.exclusive = exclusive;
  const auto plan = retain(all, one, {.now = now});
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
  Steps out;
  for (std::size_t i = 0; plan && i < all.size(); ++i) {
    for (const Reason& reason : plan->decisions[i].reasons) {
      if (reason.cause == Reason::Cause::rule) out.push_back(all[i].step);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

Rule steps_rule(std::uint64_t interval, Rule::StepMode mode, std::optional<std::uint64_t> max = {}) {
  Rule out = rule(Kind::every_steps);
  out.step_interval = interval;
  out.step_mode = mode;
  out.max = max;
  return out;
}
Rule time_rule(Kind kind, Duration duration, Rule::From from = Rule::From::newest) {
  Rule out = rule(kind);
  out.duration = duration;
  out.from = from;
  return out;
}
Rule best_rule(std::optional<std::uint64_t> count, Rule::Better better = Rule::Better::lower) {
  Rule out = rule(Kind::best, count);
  out.metric = "loss";
  out.better = better;
  return out;
}
std::vector<Checkpoint> with_losses(std::vector<double> losses) {
  std::vector<Checkpoint> out;
  for (const double loss : losses) {
    out.push_back(saved(out.size() + 1, kHour * static_cast<int>(out.size())));
    out.back().metrics = {{"loss", loss}};
  }
  return out;
}

TEST(RetainRules, LastComparesStepsAsNumbers) {
  EXPECT_EQ(by_rule(rule(Kind::last, 2), hourly({9000, 9900, 10000})), (Steps{9900, 10000}));
  EXPECT_EQ(by_rule(rule(Kind::last), hourly({1, 2, 3})), (Steps{1, 2, 3}));
  EXPECT_EQ(by_rule(rule(Kind::last, 9), hourly({1, 2, 3})), (Steps{1, 2, 3}));
  EXPECT_EQ(by_rule(rule(Kind::first, 1), hourly({9000, 9900, 10000})), (Steps{9000}));
}

TEST(RetainRules, ExactStepsAreMultiplesAndTheNewestGenerationStandsForAStep) {
  std::vector<Checkpoint> all = hourly({0, 500, 999, 1000, 1001, 2000});
  EXPECT_EQ(by_rule(steps_rule(1000, Rule::StepMode::exact), all), (Steps{0, 1000, 2000}));
  EXPECT_EQ(by_rule(steps_rule(1000, Rule::StepMode::exact, 2), all), (Steps{1000, 2000}));
  all.push_back(saved(1000, kHour * 9));
  all.back().id = "again";
  all.back().generation = 5000;
  const Policy one = policy({steps_rule(1000, Rule::StepMode::exact)});
  const auto plan = retain(all, one, {.now = kStart + kDay});
  EXPECT_EQ(plan->decisions[3].action, Action::trash);
  EXPECT_EQ(plan->decisions.back().action, Action::keep);
  EXPECT_EQ(why_of(*plan, all, one, 3), "replaced by a newer save of this step");
}

TEST(RetainRules, SpacedStepsAreGreedyFromTheOldest) {
  EXPECT_EQ(by_rule(steps_rule(10, Rule::StepMode::spaced), hourly({3, 9, 13, 22, 24, 40})), (Steps{3, 13, 24, 40}));
  EXPECT_EQ(by_rule(steps_rule(10, Rule::StepMode::spaced, 1), hourly({3, 9, 13, 22, 24, 40})), (Steps{40}));
}

TEST(RetainRules, ClosestKeepsTheNearestOfEachMultipleTheLaterOfTwoAndTheNewest) {
  EXPECT_EQ(by_rule(steps_rule(10, Rule::StepMode::closest), hourly({1, 8, 11, 19, 21, 27, 28})),
            (Steps{1, 11, 21, 28}));
  EXPECT_EQ(by_rule(steps_rule(10, Rule::StepMode::closest), hourly({7, 12})), (Steps{7, 12}));
  EXPECT_EQ(by_rule(steps_rule(10, Rule::StepMode::closest), hourly({5, 15})), (Steps{5, 15}));
  EXPECT_EQ(by_rule(steps_rule(10, Rule::StepMode::closest), hourly({2, 4, 5, 6})), (Steps{2, 6}));
  const std::uint64_t top = UINT64_MAX;
  EXPECT_EQ(by_rule(steps_rule(top, Rule::StepMode::closest), hourly({0, top - 1, top})), (Steps{0, top}));
}

TEST(RetainRules, EveryDurationIsGreedyFromTheOldestByTime) {
  std::vector<Checkpoint> all;
  for (const int hours : {0, 5, 6, 11, 12, 30}) all.push_back(saved(static_cast<std::uint64_t>(hours), kHour * hours));
  EXPECT_EQ(by_rule(time_rule(Kind::every, kHour * 6), all), (Steps{0, 6, 12, 30}));
  Rule limited = time_rule(Kind::every, kHour * 6);
  limited.max = 2;
  EXPECT_EQ(by_rule(limited, all), (Steps{12, 30}));
}

TEST(RetainRules, AClockThatStepsBackCostsOneCheckpointNotADay) {
  std::vector<Checkpoint> all;
  const std::vector<int> hours{0, 6, 30, 12, 13, 18};  // the third was saved by a clock a day ahead
  for (std::size_t i = 0; i < hours.size(); ++i) all.push_back(saved(i, kHour * hours[i]));
  EXPECT_EQ(by_rule(time_rule(Kind::every, kHour * 6), all), (Steps{0, 1, 2, 3, 5}));
}

TEST(RetainRules, CalendarRulesKeepTheNewestOfEachBucket) {
  std::vector<Checkpoint> all;
  for (std::uint64_t i = 0; i < 72; ++i) all.push_back(saved(i, kHour * static_cast<int>(i)));
  Rule daily = rule(Kind::daily, 2);
  EXPECT_EQ(by_rule(daily, all), (Steps{47, 71}));
  daily.count = 5;
  EXPECT_EQ(by_rule(daily, all), (Steps{0, 23, 47, 71}));  // three days fill no five: the oldest as well
  daily.oldest_if_short = false;
  EXPECT_EQ(by_rule(daily, all), (Steps{23, 47, 71}));
  daily.count.reset();
  EXPECT_EQ(by_rule(daily, all), (Steps{23, 47, 71}));
  Rule yearly = rule(Kind::yearly, 1);
  EXPECT_EQ(by_rule(yearly, all), (Steps{71}));
}

TEST(RetainRules, WithinIsStrictlyYoungerThanTheNewestOrThanNow) {
  const std::vector<Checkpoint> all = hourly({0, 1, 2, 3, 4, 5});
  EXPECT_EQ(by_rule(time_rule(Kind::within, kHour * 2), all), (Steps{4, 5}));
  EXPECT_EQ(by_rule(time_rule(Kind::within, kHour * 2 + kMinute), all), (Steps{3, 4, 5}));
  EXPECT_EQ(by_rule(time_rule(Kind::within, kHour * 2, Rule::From::now), all, kStart + kHour * 6), (Steps{5}));
  EXPECT_EQ(by_rule(time_rule(Kind::within, kHour * 2, Rule::From::now), all, kStart + kDay), Steps{});
}

TEST(RetainRules, WithinIsNotMisledByClocks) {
  std::vector<Checkpoint> all = hourly({0, 1, 2, 3});
  all[1].created = kStart + kDay * 3;  // a day and more ahead: kept, but no measure for the others
  EXPECT_EQ(by_rule(time_rule(Kind::within, kHour * 2), all, kStart + kHour * 4), (Steps{1, 2, 3}));
  all = hourly({0, 1, 2, 3});
  all[3].created = kStart - kDay;  // the clock went back a day: newer in order than what is young
  EXPECT_EQ(by_rule(time_rule(Kind::within, kHour * 2), all), (Steps{1, 2, 3}));
}

TEST(RetainRules, OfTwoSavesOfAStepTheNewerStands) {
  // Step 0 twice on one day, step 50 twice on two days.
  std::vector<Checkpoint> all = hourly({0, 0, 50, 50});
  all[3].created = kStart + kDay;
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].generation = i + 1;
    all[i].id = "g" + std::to_string(i + 1);
  }
  const auto generations = [&](const Rule& rule) {
    Steps out;
    const auto plan = retain(all, policy({rule}), {.now = kStart + kDay * 400});
    for (std::size_t i = 0; plan && i < all.size(); ++i) {
      for (const Reason& reason : plan->decisions[i].reasons)
        if (reason.cause == Reason::Cause::rule) out.push_back(all[i].generation);
    }
    return out;
  };
  EXPECT_EQ(generations(rule(Kind::first, 1)), (Steps{2}));
  EXPECT_EQ(generations(rule(Kind::first, 2)), (Steps{2, 4}));
  EXPECT_EQ(generations(steps_rule(50, Rule::StepMode::exact)), (Steps{2, 4}));
  EXPECT_EQ(generations(steps_rule(50, Rule::StepMode::spaced)), (Steps{2, 4}));
  EXPECT_EQ(generations(time_rule(Kind::every, kMinute)), (Steps{2, 4}));
  EXPECT_EQ(generations(rule(Kind::daily)), (Steps{2, 4}));
  EXPECT_EQ(generations(rule(Kind::yearly, 2)), (Steps{2, 4})) << "the oldest where there are too few";
  EXPECT_EQ(generations(rule(Kind::last, 2)), (Steps{3, 4})) << "saves are counted, not steps";
}

TEST(RetainRules, WhatIsInfinitelyGoodHasDiverged) {
  EXPECT_EQ(by_rule(best_rule(1), with_losses({-HUGE_VAL, 2, 3})), (Steps{2}));
  EXPECT_EQ(by_rule(best_rule(1, Rule::Better::higher), with_losses({HUGE_VAL, 2, 3})), (Steps{3}));
  Rule missing = best_rule(3);
  missing.nan = Rule::Nan::missing;
  EXPECT_EQ(by_rule(missing, with_losses({-HUGE_VAL, 2, HUGE_VAL})), (Steps{2, 3}));
}

TEST(RetainRules, BestRanksNanLastAndOfEqualsTheNewer) {
  const double nan = std::nan("");
  EXPECT_EQ(by_rule(best_rule(2), with_losses({3, 1, 2, nan})), (Steps{2, 3}));
  EXPECT_EQ(by_rule(best_rule(1), with_losses({1, 1, 2})), (Steps{2}));
  EXPECT_EQ(by_rule(best_rule(2, Rule::Better::higher), with_losses({nan, 1, INFINITY, 2})), (Steps{2, 4}));
  EXPECT_EQ(by_rule(best_rule(4), with_losses({nan, 1, nan, -INFINITY})), (Steps{1, 2, 3, 4}));
  EXPECT_EQ(by_rule(best_rule(3), with_losses({nan, 1, nan, -INFINITY})), (Steps{2, 3, 4}));
  Rule rule = best_rule(4);
  rule.nan = Rule::Nan::missing;
  EXPECT_EQ(by_rule(rule, with_losses({nan, 1, nan, 2})), (Steps{2, 4}));
  rule.missing = Rule::Missing::keep;
  rule.count = 1;
  EXPECT_EQ(by_rule(rule, with_losses({nan, 1, nan, 2})), (Steps{1, 2, 3}));
}

TEST(RetainRules, AMetricThatNobodyRecordedKeepsAllAndIsToldOf) {
  const Policy two = policy({rule(Kind::last, 2), best_rule(3)});
  const std::vector<Checkpoint> all = hourly({1, 2, 3, 4, 5});
  const auto plan = retain(all, two, {.now = kStart + kDay});
  EXPECT_EQ(kept(*plan, all), (Steps{1, 2, 3, 4, 5}));
  EXPECT_EQ(plan->warnings,
            std::vector<std::string>{"rule 'best': no checkpoint of r has the metric 'loss': it keeps all of them"});
}

TEST(RetainRules, FiltersAndTagsSelect) {
  std::vector<Checkpoint> all = hourly({1, 2, 3, 4});
  all[0].tags = {"release"};
  all[2].tags = {"eval"};
  Rule tagged = rule(Kind::tags_any);
  tagged.tags = {"release", "paper"};
  EXPECT_EQ(by_rule(tagged, all), (Steps{1}));
  Rule last = rule(Kind::last, 1);
  last.where = *Filter::parse("tag == 'eval'");
  EXPECT_EQ(by_rule(last, all), (Steps{3}));
}

TEST(RetainRules, CountingExclusivelyAnEarlierRulesCheckpointsTakeNoRank) {
  std::vector<Checkpoint> all;
  for (std::uint64_t i = 0; i < 96; ++i) all.push_back(saved(i, kHour * static_cast<int>(i)));
  Policy both = policy({rule(Kind::last, 2), rule(Kind::daily, 2)});
  both.keep[1].oldest_if_short = false;
  EXPECT_EQ(kept(*retain(all, both, {.now = kStart + kDay * 5}), all), (Steps{71, 94, 95}));
  both.exclusive = true;  // the newest day's is kept by last: it holds its bucket and counts for nothing
  EXPECT_EQ(kept(*retain(all, both, {.now = kStart + kDay * 5}), all), (Steps{47, 71, 94, 95}));
}

}  // namespace
}  // namespace ckpt::catalog
