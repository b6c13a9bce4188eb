#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "catalog/failure_rate.hpp"
#include "catalog/interval.hpp"

/// The formulas against models that do not use them: runs with failures drawn by chance, and searches over all values.
namespace ckpt::catalog {
namespace {

struct Played {
  double goodput = 0;
  double loss = 0;  ///< work lost at a failure, on average
};

/// A job that works T, stalls for C, and loses at a failure what was done since the newest durable save; a failure
/// costs R, during which others may come.
Played play(double interval, const Costs& costs, std::uint64_t seed, int failures) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> time_to_failure(1 / costs.mtbf_s);
  double wall = 0;
  double useful = 0;
  double lost = 0;
  for (int i = 0; i < failures; ++i) {
    double left = time_to_failure(random);
    wall += left;
    if (left < costs.restart_s) continue;  // it failed again before training went on
    left -= costs.restart_s;
    const double whole = std::floor(left / (interval + costs.stall_s));
    const double rest = left - whole * (interval + costs.stall_s);
    useful += whole * interval;
    lost += std::min(rest, interval);
  }
  return {.goodput = useful / wall, .loss = lost / failures};
}

TEST(IntervalModel, GoodputIsThatOfPlayedRuns) {
  for (const double stall : {5.0, 60.0, 300.0}) {
    for (const double restart : {0.0, 600.0}) {
      const Costs costs{.stall_s = stall, .drain_s = stall, .restart_s = restart, .mtbf_s = 10'000};
      for (const double interval : {500.0, 1500.0, 5000.0}) {
        const Played played = play(interval, costs, 7, 200'000);
        EXPECT_NEAR(goodput(interval, costs), played.goodput, 0.01) << stall << " " << restart << " " << interval;
      }
      const double best = best_interval(costs);
      const double at_best = play(best, costs, 11, 200'000).goodput;
      EXPECT_GT(at_best + 0.003, play(best * 0.6, costs, 11, 200'000).goodput);
      EXPECT_GT(at_best + 0.003, play(best * 1.6, costs, 11, 200'000).goodput);
    }
  }
}

TEST(IntervalModel, TheLossAtAFailureIsThatOfPlayedRuns) {
  for (const double interval : {300.0, 3000.0, 30'000.0}) {
    const Costs costs{.mtbf_s = 10'000};
    EXPECT_NEAR(play(interval, costs, 3, 200'000).loss / expected_loss(interval, costs), 1, 0.02) << interval;
  }
}

TEST(IntervalModel, DalyIsNearerToTheBestThanYoungWhereFailuresAreFrequent) {
  for (const double mtbf : {1000.0, 3000.0, 10'000.0, 100'000.0}) {
    const Costs costs{.stall_s = 100, .mtbf_s = mtbf};
    EXPECT_LE(std::fabs(daly(costs) - best_interval(costs)), std::fabs(young(costs) - best_interval(costs))) << mtbf;
    EXPECT_NEAR(daly(costs) / best_interval(costs), 1, 0.03) << mtbf;
  }
}

TEST(IntervalModel, TheBestTiersAreThoseOfASearchOverAll) {
  std::mt19937_64 random(20260202);
  const auto between = [&](double low, double high) {
    return low * std::pow(high / low, static_cast<double>(random() % 1'000'000) / 1e6);
  };
  for (int round = 0; round < 60; ++round) {
    DrainedTiers tiers{
        .near = {.stall_s = between(0.5, 60), .restart_s = between(1, 600), .mtbf_s = between(3e3, 1e6)}};
    tiers.near.drain_s = tiers.near.stall_s * between(1, 5);
    tiers.drain_s = between(1, 3000);
    tiers.lost = static_cast<double>(random() % 101) / 100;
    const TwoTiers best = best_tiers(tiers);
    ASSERT_GT(best.interval_s, 0);
    EXPECT_DOUBLE_EQ(best.waste, waste(tiers, best.interval_s, best.every));
    EXPECT_GE(best.interval_s * static_cast<double>(best.every), 1.1 * tiers.drain_s * (1 - 1e-9));
    for (std::uint64_t every = 1; every <= 400; ++every) {
      for (double interval = 0.5; interval < 2e6; interval *= 1.05) {
        if (interval * static_cast<double>(every) < 1.1 * tiers.drain_s || interval < 1.1 * tiers.near.drain_s)
          continue;
        ASSERT_LE(best.waste, waste(tiers, interval, every) * (1 + 1e-9)) << every << " " << interval;
      }
    }
  }
  EXPECT_EQ(best_tiers({}).interval_s, 0);
}

TEST(IntervalModel, TheQuantilesOfTheFailureRateHoldWhatWasDrawn) {
  // Of many true rates drawn from the prior and histories drawn from them, a tenth lies below the 10 % quantile.
  std::mt19937_64 random(5);
  const double prior = 1000;
  int below = 0;
  constexpr int kRounds = 4000;
  for (int i = 0; i < kRounds; ++i) {
    const double rate = std::exponential_distribution<double>(prior)(random);
    const double uptime = 5000;
    const auto failures = static_cast<std::uint64_t>(std::poisson_distribution<int>(rate * uptime)(random));
    below += 1 / rate < mtbf_quantile({.uptime_s = uptime, .failures = failures, .prior_mtbf_s = prior}, 0.1);
  }
  EXPECT_NEAR(below / static_cast<double>(kRounds), 0.1, 0.02);
}

}  // namespace
}  // namespace ckpt::catalog
