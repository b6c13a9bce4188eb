#include "catalog/interval.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "catalog/failure_rate.hpp"

namespace ckpt::catalog {
namespace {

constexpr double kHourS = 3600;

TEST(Interval, YoungAndDalyAreTheirFormulas) {
  const Costs costs{.stall_s = 22.8, .mtbf_s = 234 * kHourS};
  EXPECT_NEAR(young(costs) / 60, 103.3, 0.1);
  EXPECT_NEAR(young({.stall_s = 1.9, .mtbf_s = 234 * kHourS}) / 60, 29.8, 0.1);
  // C = 300, M = 11160: sqrt(2CM) = 2587.7; 1 + sqrt(C/2M)/3 + C/2M/9 = 1.04015...
  EXPECT_NEAR(daly({.stall_s = 300, .mtbf_s = 3.1 * kHourS}), 2391.6, 0.5);
  EXPECT_EQ(daly({.stall_s = 200, .mtbf_s = 100}), 100);  // C >= 2M
}

TEST(Interval, GoodputIsThatOfTheTextbook) {
  // The cases of which the base rule is compared with the optimum.
  const Costs rare{.stall_s = 300, .restart_s = 600, .mtbf_s = 3.1 * kHourS};
  EXPECT_NEAR(goodput(20 * rare.stall_s, rare), 0.671, 0.001);
  EXPECT_NEAR(goodput(best_interval(rare), rare), 0.744, 0.001);
  const Costs medium{.stall_s = 120, .restart_s = 600, .mtbf_s = 1.8 * kHourS};
  EXPECT_NEAR(goodput(20 * medium.stall_s, medium), 0.710, 0.001);
  EXPECT_NEAR(goodput(best_interval(medium), medium), 0.747, 0.001);
  const Costs often{.stall_s = 60, .restart_s = 600, .mtbf_s = 7.9 * kHourS};
  EXPECT_NEAR(goodput(20 * often.stall_s, often), 0.912, 0.001);
  EXPECT_NEAR(goodput(best_interval(often), often), 0.917, 0.001);
}

TEST(Interval, NoOtherIntervalIsBetterThanTheBest) {
  for (const double stall : {0.001, 1.0, 60.0, 3000.0}) {
    for (const double mtbf : {600.0, 1e5, 1e8}) {
      const Costs costs{.stall_s = stall, .restart_s = 100, .mtbf_s = mtbf};
      const double best = best_interval(costs);
      ASSERT_GT(best, 0);
      for (const double factor : {0.5, 0.9, 0.99, 1.01, 1.1, 2.0})
        EXPECT_GE(goodput(best, costs), goodput(best * factor, costs)) << stall << " " << mtbf << " " << factor;
      if (stall < mtbf / 1000) {
        EXPECT_NEAR(young(costs) / best, 1, 0.05);
      }
    }
  }
}

TEST(Interval, TheBaseRuleNamesWhatDecides) {
  BaseRule rule = base_rule(600, {.stall_s = 1.9, .drain_s = 22.8, .mtbf_s = 234 * kHourS});
  EXPECT_EQ(rule.interval_s, 600);
  EXPECT_STREQ(limit_name(rule.limit), "rework");
  EXPECT_FALSE(rule.rework_missed);
  EXPECT_FALSE(rule.saves_too_rarely);
  rule = base_rule(600, {.stall_s = 300, .drain_s = 300, .mtbf_s = 3.1 * kHourS});
  EXPECT_EQ(rule.interval_s, 6000);
  EXPECT_STREQ(limit_name(rule.limit), "overhead cap");
  EXPECT_TRUE(rule.rework_missed);
  EXPECT_TRUE(rule.saves_too_rarely);  // M = 37 C
  rule = base_rule(0, {.stall_s = 1, .drain_s = 100});
  EXPECT_DOUBLE_EQ(rule.interval_s, 110);
  EXPECT_STREQ(limit_name(rule.limit), "drain");
  EXPECT_DOUBLE_EQ(base_rule(0, {.stall_s = 1, .drain_s = 100}, 2).interval_s, 55);
  EXPECT_NEAR(overhead(20, {.stall_s = 1}), 1.0 / 21, 1e-12);
  EXPECT_DOUBLE_EQ(bandwidth_for(1e12, 1000), 2e10);
}

TEST(Interval, TheBaseRuleMeetsYoungWhereFailuresAreTwoHundredSavesApart) {
  const Costs costs{.stall_s = 7, .mtbf_s = 1400};
  EXPECT_NEAR(young(costs), 20 * costs.stall_s, 1e-9);
}

TEST(Interval, LossIsAboutHalfAnIntervalAndWhatIsNotDurable) {
  const Costs costs{.stall_s = 2, .drain_s = 32, .mtbf_s = 1e6};
  EXPECT_NEAR(expected_loss(1000, costs), 530, 0.2);
  EXPECT_NEAR(expected_loss(1e-3, costs), 30.0005, 1e-6);
  EXPECT_NEAR(expected_loss(1e9, {.mtbf_s = 100}), 100, 1e-6);
}

TEST(Interval, StepsAreWhole) {
  EXPECT_EQ(aligned_steps(100, 30), 3u);
  EXPECT_EQ(aligned_steps(1, 30), 1u);
  EXPECT_EQ(aligned_steps(100, 0), 1u);
  EXPECT_EQ(aligned_steps(1e300, 1), 1'000'000'000'000'000'000u);
}

TEST(Interval, WhatIsNoNumberGivesNoInterval) {
  for (const Costs& bad : {Costs{}, Costs{.stall_s = -1, .mtbf_s = 10}, Costs{.stall_s = 1, .mtbf_s = std::nan("")},
                           Costs{.stall_s = 1, .mtbf_s = INFINITY}}) {
    EXPECT_EQ(young(bad), 0);
    EXPECT_EQ(daly(bad), 0);
    EXPECT_EQ(best_interval(bad), 0);
  }
  EXPECT_EQ(goodput(0, {.stall_s = 1, .mtbf_s = 1}), 0);
  EXPECT_EQ(goodput(1e9, {.stall_s = 1, .mtbf_s = 1}), 0);
}

TEST(FailureRate, TheGammaDistributionIsThatOfTables) {
  EXPECT_NEAR(gamma_below(1, 1), 1 - std::exp(-1), 1e-13);
  EXPECT_NEAR(gamma_below(0.5, 2), std::erf(std::sqrt(2)), 1e-13);
  EXPECT_NEAR(gamma_quantile(1, 0.95), -std::log(0.05), 1e-10);
  // Half the chi-square quantiles of 2a degrees of freedom: 20: 10.851, 31.410; 200: 168.279, 233.994.
  EXPECT_NEAR(2 * gamma_quantile(10, 0.05), 10.851, 0.001);
  EXPECT_NEAR(2 * gamma_quantile(10, 0.95), 31.410, 0.001);
  EXPECT_NEAR(2 * gamma_quantile(100, 0.05), 168.279, 0.001);
  EXPECT_NEAR(2 * gamma_quantile(100, 0.95), 233.994, 0.001);
  const double many = 1e6;
  EXPECT_NEAR(gamma_quantile(many, 0.95), many + 1.644854 * std::sqrt(many) + (1.644854 * 1.644854 - 1) / 3, 0.1);
}

TEST(FailureRate, WithoutFailuresThePriorSpeaks) {
  const MtbfEstimate estimate = estimate_mtbf({.uptime_s = 0, .failures = 0, .prior_mtbf_s = 1000});
  EXPECT_FALSE(estimate.likeliest_s);
  EXPECT_NEAR(estimate.mean_s, 1000, 1e-9);
  EXPECT_NEAR(estimate.low_s, 1000 / -std::log(0.05), 1e-6);
  EXPECT_NEAR(estimate.high_s, 1000 / -std::log(0.95), 1e-6);
}

TEST(FailureRate, WithManyTheIntervalClosesAroundUptimeOverFailures) {
  const MtbfEstimate estimate = estimate_mtbf({.uptime_s = 1e8, .failures = 10000, .prior_mtbf_s = 1});
  EXPECT_DOUBLE_EQ(*estimate.likeliest_s, 1e4);
  EXPECT_NEAR(estimate.low_s, 1e4, 200);
  EXPECT_NEAR(estimate.high_s, 1e4, 200);
  EXPECT_LT(estimate.low_s, estimate.mean_s);
  EXPECT_LT(estimate.mean_s, estimate.high_s);
}

}  // namespace
}  // namespace ckpt::catalog
