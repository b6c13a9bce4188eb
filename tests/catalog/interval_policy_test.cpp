#include "catalog/interval_policy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ckpt::catalog {
namespace {

using Why = SaveAnswer::Why;

IntervalInputs at_step(std::uint64_t step, double now_s) {
  return {.step = step,
          .now_s = now_s,
          .measured = {.costs = {.stall_s = 2, .drain_s = 2, .mtbf_s = 40000}, .step_s = 10, .saves = 3}};
}

TEST(IntervalPolicy, EveryStepsMakesGoodWhatWasHeldBack) {
  const IntervalPolicy policy{.every_steps = 100};
  EXPECT_EQ(should_save(policy, at_step(100, 0)).why, Why::steps);
  EXPECT_FALSE(should_save(policy, at_step(101, 0)).save);
  IntervalInputs in = at_step(200, 0);
  in.last_step = 100;
  in.in_flight = 1;
  EXPECT_EQ(should_save(policy, in).why, Why::held_in_flight);
  in.step = 201;
  in.in_flight = 0;
  EXPECT_TRUE(should_save(policy, in).save);
  in.last_step = 201;
  in.step = 299;
  EXPECT_FALSE(should_save(policy, in).save);
  in.step = 201;
  EXPECT_EQ(should_save(policy, in).why, Why::done);
}

TEST(IntervalPolicy, EveryDurationCountsFromTheBeginningOfTheLastSave) {
  const IntervalPolicy policy{.every_s = 600};
  IntervalInputs in = at_step(7, 599);
  EXPECT_FALSE(should_save(policy, in).save);
  in.now_s = 600;
  EXPECT_EQ(should_save(policy, in).why, Why::time);
  in.last_begin_s = 100;
  EXPECT_FALSE(should_save(policy, in).save);
}

TEST(IntervalPolicy, OptimalMeasuresFirstThenAimsAtTheBestInterval) {
  const IntervalPolicy policy{.optimal = true};
  IntervalInputs in = at_step(1, 10);
  in.measured.saves = 0;
  EXPECT_EQ(should_save(policy, in).why, Why::first_measure);
  in.measured.saves = 1;
  in.last_end_s = 1000;
  const double best = best_interval(in.measured.costs);
  EXPECT_NEAR(best, 399, 1);
  in.now_s = 1000 + best - 6;  // the next step's end is nearer
  EXPECT_FALSE(should_save(policy, in).save);
  in.now_s = 1000 + best - 4;
  const SaveAnswer answer = should_save(policy, in);
  EXPECT_TRUE(answer.save);
  EXPECT_EQ(answer.why, Why::optimal);
  EXPECT_NEAR(answer.planned_interval_s, best, 1e-9);
}

TEST(IntervalPolicy, ThePlanChangesOnlyBeyondTheHysteresis) {
  const IntervalPolicy policy{.optimal = true};
  MeasuredCosts measured = at_step(1, 0).measured;
  const double first = planned_interval(policy, measured, 1, 0);
  measured.costs.stall_s = 2.5;  // the best interval grows by 12 %
  EXPECT_EQ(planned_interval(policy, measured, 1, first), first);
  measured.costs.stall_s = 4;  // by 41 %
  EXPECT_NEAR(planned_interval(policy, measured, 1, first), best_interval(measured.costs), 1e-9);
}

TEST(IntervalPolicy, ThePlanKeepsToDrainCapAndClamps) {
  IntervalPolicy policy{.optimal = true};
  MeasuredCosts measured = at_step(1, 0).measured;
  measured.costs.drain_s = 1000;
  EXPECT_DOUBLE_EQ(planned_interval(policy, measured, 1, 0), 1100);
  EXPECT_DOUBLE_EQ(planned_interval(policy, measured, 2, 0), 550);
  policy.most_interval_s = 300;
  EXPECT_DOUBLE_EQ(planned_interval(policy, measured, 1, 0), 300);
  policy = {.optimal = true, .most_overhead = 0.001};
  EXPECT_DOUBLE_EQ(planned_interval(policy, measured, 4, 0), 1998);
  measured.costs.mtbf_s = 0;  // nothing known of failures: 20 x stall
  measured.costs.drain_s = 2;
  EXPECT_DOUBLE_EQ(planned_interval({.optimal = true}, measured, 1, 0), 40);
}

TEST(IntervalPolicy, TheOverheadCapHoldsBackButNotASignal) {
  const IntervalPolicy policy{.every_steps = 1, .most_overhead = 0.05};
  IntervalInputs in = at_step(5, 1000);
  in.last_end_s = 1000 - 37;
  in.last_step = 4;
  EXPECT_EQ(should_save(policy, in).why, Why::held_overhead);
  in.now_s += 1;  // 2/(38 + 2) = 5 %
  EXPECT_TRUE(should_save(policy, in).save);
  in.now_s -= 1;
  in.stop_requested = true;
  in.in_flight = 1;
  EXPECT_EQ(should_save(policy, in).why, Why::signal);
  IntervalPolicy deaf = policy;
  deaf.on_signal = false;
  EXPECT_FALSE(should_save(deaf, in).save);
}

TEST(IntervalPolicy, TheLastChanceBeforeTheTimeLimitIsTakenOnce) {
  const IntervalPolicy policy{.before_end_s = 60};
  IntervalInputs in = at_step(5, 1000);
  in.measured.costs.drain_s = 30;
  in.time_left_s = 101;  // the next step ends with 91 s left: 60 + 30 still fit
  EXPECT_FALSE(should_save(policy, in).save);
  in.time_left_s = 99;
  EXPECT_EQ(should_save(policy, in).why, Why::end);
  in.saved_for_end = true;
  EXPECT_FALSE(should_save(policy, in).save);
}

TEST(IntervalPolicy, TheSameInputsGiveTheSameAnswerOnEveryRank) {
  const IntervalPolicy policy{.every_steps = 7, .optimal = true, .most_overhead = 0.1};
  for (std::uint64_t step = 0; step < 50; ++step) {
    const IntervalInputs in = at_step(step, static_cast<double>(step) * 33);
    const SaveAnswer a = should_save(policy, in);
    const SaveAnswer b = should_save(policy, in);
    EXPECT_EQ(a.save, b.save);
    EXPECT_EQ(a.text, b.text);
  }
}

TEST(IntervalPolicy, MeasuresAreSmoothed) {
  MeasuredCosts measured = with_save({}, 10, 20);
  EXPECT_DOUBLE_EQ(measured.costs.stall_s, 10);
  measured = with_save(measured, 20, 20);
  EXPECT_DOUBLE_EQ(measured.costs.stall_s, 13);
  EXPECT_DOUBLE_EQ(measured.costs.drain_s, 20);
  measured = with_save(measured, -5, 20);  // a clock that lied
  EXPECT_DOUBLE_EQ(measured.costs.stall_s, 13);
  EXPECT_EQ(measured.saves, 3u);
  EXPECT_DOUBLE_EQ(with_step(with_step({}, 4), 14).step_s, 7);
}

TEST(IntervalPolicy, ASimulatedRunKeepsItsOverheadAndItsInterval) {
  const IntervalPolicy policy{.optimal = true, .most_overhead = 0.05};
  IntervalInputs in{.measured = {.costs = {.mtbf_s = 40000}, .step_s = 3}};
  std::vector<double> saves;
  for (; in.now_s < 40000; ++in.step) {
    in.now_s += 3;
    const SaveAnswer answer = should_save(policy, in);
    in.planned_interval_s = answer.planned_interval_s;
    if (!answer.save) continue;
    saves.push_back(in.now_s);
    in.last_step = in.step;
    in.last_begin_s = in.now_s;
    in.now_s += 2;
    in.last_end_s = in.now_s;
    in.measured = with_save(in.measured, 2, 2);
  }
  ASSERT_GT(saves.size(), 50u);
  const double gap = (saves.back() - saves[1]) / static_cast<double>(saves.size() - 2);
  EXPECT_NEAR(gap, best_interval({.stall_s = 2, .mtbf_s = 40000}) + 2, 3);
}

TEST(IntervalPolicy, StepZeroIsSavedOnlyOnASignalOrWhereThatIsAsked) {
  IntervalPolicy policy{.every_steps = 1, .every_s = 1, .optimal = true};
  IntervalInputs in = at_step(0, 1000);
  EXPECT_EQ(should_save(policy, in).why, Why::not_yet);
  EXPECT_FALSE(should_save(policy, in).save);
  in.measured.saves = 0;  // not even to measure what a save costs
  EXPECT_FALSE(should_save(policy, in).save);
  policy.at_start = true;
  EXPECT_EQ(should_save(policy, in).why, Why::start);
  EXPECT_TRUE(should_save(policy, in).save);
  in.stop_requested = true;
  policy.at_start = false;
  EXPECT_EQ(should_save(policy, in).why, Why::signal);
  in = at_step(1, 1000);
  EXPECT_TRUE(should_save(policy, in).save);
}

TEST(IntervalPolicy, NextSaveIsTheFirstMomentAtWhichShouldSaveSaysYes) {
  std::mt19937_64 random(20260131);
  const auto up_to = [&](std::uint64_t n) { return random() % n; };
  std::uint64_t yes = 0;
  for (int round = 0; round < 20'000; ++round) {
    IntervalPolicy policy{.on_signal = false};
    if (up_to(2) == 0) policy.every_steps = 1 + up_to(50);
    if (up_to(2) == 0) policy.every_s = static_cast<double>(1 + up_to(500));
    policy.optimal = up_to(3) == 0;
    if (up_to(3) == 0) policy.most_overhead = 0.01 + static_cast<double>(up_to(20)) / 100;
    if (up_to(3) == 0) policy.before_end_s = static_cast<double>(up_to(100));
    IntervalInputs in{.step = 1 + up_to(300), .now_s = static_cast<double>(up_to(600))};
    if (up_to(4) != 0) in.last_step = up_to(in.step);
    in.last_end_s = std::min(in.now_s, static_cast<double>(up_to(10)));
    in.measured = {.costs = {.stall_s = static_cast<double>(1 + up_to(5)), .drain_s = 6, .mtbf_s = 9000}, .step_s = 2};
    in.measured.saves = up_to(4);
    if (up_to(2) == 0) in.time_left_s = static_cast<double>(up_to(2000));
    const NextSave next = next_save(policy, in);
    EXPECT_EQ(next.answer.save, should_save(policy, in).save);
    yes += next.answer.save;
    // By time: at that moment and not a second before, whatever the step is.
    IntervalPolicy by_time = policy;
    by_time.every_steps.reset();
    const auto asked_in = [&](double seconds) {
      IntervalInputs later = in;
      later.now_s += seconds;
      if (later.time_left_s) *later.time_left_s -= seconds;
      later.planned_interval_s = next.planned_interval_s;
      return should_save(by_time, later).save;
    };
    if (next.in_s) {
      EXPECT_TRUE(asked_in(*next.in_s + 1e-6)) << round;
      EXPECT_FALSE(*next.in_s > 1 && asked_in(*next.in_s - 1)) << round;
    } else {
      EXPECT_FALSE(asked_in(1e6)) << round;
    }
    // By steps: at that step and at none between, where no cap holds it back.
    if (!next.step) continue;
    IntervalPolicy by_steps{.every_steps = policy.every_steps, .on_signal = false};
    for (std::uint64_t step = in.step; step <= *next.step; ++step) {
      IntervalInputs later = in;
      later.step = step;
      EXPECT_EQ(should_save(by_steps, later).save, step == *next.step || step % *policy.every_steps == 0) << round;
      if (should_save(by_steps, later).save) {
        EXPECT_EQ(step, *next.step) << round;
        break;
      }
    }
  }
  EXPECT_GT(yes, 1000u);
}

}  // namespace
}  // namespace ckpt::catalog
