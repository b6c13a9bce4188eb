// Guards, the floor, series, pressure and demotion; and the words in which decisions are told.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "catalog/history.hpp"

namespace ckpt::catalog {
namespace {

using Steps = std::vector<std::uint64_t>;
using Kind = Rule::Kind;

constexpr Time kLater = kStart + kDay * 30;

Policy last(std::uint64_t count) {
  return policy({rule(Kind::last, count)});
}
Retention decided(const std::vector<Checkpoint>& all, const Policy& policy,
                  const Situation& situation = {.now = kLater}) {
  auto plan = retain(all, policy, situation);
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
  return plan ? *std::move(plan) : Retention{.decisions = std::vector<Decision>(all.size())};
}

TEST(Retain, AnEmptyPolicyIsRefused) {
  for (const Policy& empty : {Policy{}, last(0)}) {
    const auto plan = retain(hourly({1, 2, 3}), empty, {.now = kLater});
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, Errc::usage);
  }
}

TEST(Retain, KeepLastNKeepsNAndNoMore) {
  std::vector<Checkpoint> all = hourly({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(kept(decided(all, last(3)), all), (Steps{4, 5, 6}));
  EXPECT_EQ(kept(decided(all, last(1)), all), (Steps{6}));
  for (Checkpoint& one : all) one.state = State::verified;
  EXPECT_EQ(kept(decided(all, last(3)), all), (Steps{4, 5, 6}));
}

TEST(Retain, TheNewestVerifiedStaysHoweverFarBack) {
  std::vector<Checkpoint> all = hourly({1, 2, 3, 4, 5});
  all[1].state = State::verified;
  EXPECT_EQ(kept(decided(all, last(2)), all), (Steps{2, 4, 5}));
  Policy without = last(2);
  without.guard = {.newest = 0, .newest_verified = 0, .min_keep = 0};
  const Retention plan = decided(all, without);
  EXPECT_EQ(kept(plan, all), (Steps{2, 4, 5}));
  EXPECT_EQ(plan.decisions[1].blockers.at(0).cause, Reason::Cause::floor_newest);
}

TEST(Retain, WithAllGuardsOffSomethingToLoadIsLeft) {
  Policy none = policy({rule(Kind::tags_any)});
  none.keep[0].tags = {"never said"};
  none.guard = {.newest = 0, .newest_verified = 0, .resume_source = false, .min_keep = 0};
  const std::vector<Checkpoint> all = hourly({1, 2, 3});
  EXPECT_EQ(kept(decided(all, none), all), (Steps{3}));
}

TEST(Retain, NewestIsByGenerationWhereThatIsKnownAndByStepElse) {
  std::vector<Checkpoint> all = hourly({100, 200, 50});  // a step filled in later
  all[0].generation = 1;
  all[1].generation = 2;
  all[2].generation = 3;
  EXPECT_EQ(kept(decided(all, last(1)), all), (Steps{50, 200}));
  for (Checkpoint& one : all) one.generation = 0;
  EXPECT_EQ(kept(decided(all, last(1)), all), (Steps{200}));
}

TEST(Retain, TheFloorOutlastsEveryRule) {
  std::vector<Checkpoint> all = hourly({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  all[0].pins = {{.owner = "ana", .reason = "camera ready"}};
  all[1].readers = {"host n17 pid 4211 (convert)"};
  all[2].references = {"r@9"};
  all[3].trackers = {"latest"};
  all[4].state = State::unreadable;
  all[5].marks_unreadable = true;
  all[6].state = State::uncommitted;
  all[7].link = true;
  all[8].state = State::corrupt;
  const Policy policy = last(1);
  const Retention plan = decided(all, policy);
  EXPECT_EQ(trashed(plan, all), (Steps{10}));
  EXPECT_EQ(plan.decisions[6].action, Action::skip);
  EXPECT_EQ(plan.decisions[7].action, Action::skip);
  EXPECT_EQ(plan.decisions[8].action, Action::block);
  EXPECT_EQ(why_of(plan, all, policy, 0), "pinned by ana \"camera ready\" (no rule keeps it)");
  EXPECT_EQ(why_of(plan, all, policy, 1), "being read: host n17 pid 4211 (convert) (no rule keeps it)");
  EXPECT_EQ(why_of(plan, all, policy, 3), "named by latest (no rule keeps it)");
  EXPECT_EQ(why_of(plan, all, policy, 4), "unreadable at present");
  EXPECT_EQ(why_of(plan, all, policy, 8), "damaged (--include-damaged deletes it)");
  EXPECT_EQ(why_of(plan, all, policy, 9), "not in the newest 1 (2nd)");
  EXPECT_EQ(why_of(plan, all, policy, 10), "in the newest 1 (1st); the newest of its run");
}

TEST(Retain, WhatCannotBeLoadedTakesNoPlaceOfWhatCan) {
  std::vector<Checkpoint> all = hourly({1, 2, 3, 4});
  all[3].state = State::corrupt;
  all[2].state = State::unreadable;
  EXPECT_EQ(trashed(decided(all, last(2)), all), Steps{});
  EXPECT_EQ(trashed(decided(all, last(1)), all), (Steps{1}));
  EXPECT_EQ(trashed(decided(all, last(1), {.now = kLater, .include_damaged = true}), all), (Steps{1, 4}));
}

TEST(Retain, AVirtualCheckpointStaysAndReplacesNone) {
  std::vector<Checkpoint> all = hourly({1, 2, 3, 4});
  all[3].is_virtual = true;
  all[3].state = State::verified;
  const Policy policy = last(1);
  const Retention plan = decided(all, policy);
  EXPECT_EQ(trashed(plan, all), (Steps{1, 2}));
  EXPECT_EQ(why_of(plan, all, policy, 3),
            "virtual: its tensors are in other checkpoints ('ckpt materialize' copies them)");
  // Nor does it count for the share that a first run may delete.
  EXPECT_FALSE(decided(all, last(2), {.now = kLater, .first_run = true}).aborted);
  EXPECT_TRUE(decided(all, last(1), {.now = kLater, .first_run = true}).aborted);
  for (Checkpoint& one : all) one.is_virtual = true;
  EXPECT_EQ(trashed(decided(all, policy), all), Steps{});
}

TEST(Retain, ARunOfWhichAllIsCorruptKeepsItsNewest) {
  std::vector<Checkpoint> all = hourly({1, 2, 3, 4});
  for (Checkpoint& one : all) one.state = State::corrupt;
  const Policy policy = last(3);
  const Retention plan = decided(all, policy, {.now = kLater, .include_damaged = true});
  EXPECT_EQ(trashed(plan, all), (Steps{1, 2, 3}));
  EXPECT_EQ(why_of(plan, all, policy, 3), "the last usable one of its run (no rule keeps it)");
  EXPECT_EQ(why_of(plan, all, policy, 0), "damaged; deleted as requested");
  all[0].state = State::committed;  // something good is left: the floor is that one
  EXPECT_EQ(trashed(decided(all, policy, {.now = kLater, .include_damaged = true}), all), (Steps{2, 3, 4}));
}

TEST(Retain, WhatRepairMendsIsNotCorrupt) {
  std::vector<Checkpoint> all = hourly({1, 2, 3});
  all[2].state = State::repairable;
  const Policy policy = last(1);
  const Retention plan = decided(all, policy, {.now = kLater, .include_damaged = true});
  EXPECT_EQ(trashed(plan, all), (Steps{1})) << "it counts for no rule";
  EXPECT_EQ(plan.decisions[2].action, Action::keep);
  EXPECT_EQ(why_of(plan, all, policy, 2), "repairable with 'ckpt repair'");
}

TEST(Retain, AnotherToolsCheckpointIsUnfinishedWhileItsFilesAreYoung) {
  std::vector<Checkpoint> all = hourly({500, 1000, 2000, 3000});
  for (Checkpoint& one : all) {
    one.foreign = true;
    one.generation = 0;
  }
  const Time now = kStart + kDay;
  all[0].created = now - kMinute * 9;  // the run was started again from a lower step
  Policy policy = last(2);
  EXPECT_EQ(trashed(decided(all, policy, {.now = now}), all), (Steps{1000}));
  EXPECT_EQ(why_of(decided(all, policy, {.now = now}), all, policy, 0),
            "modified by another tool 9 min ago: treated as unfinished for 10 min (foreign_min_age)");
  EXPECT_EQ(trashed(decided(all, policy, {.now = now + kMinute}), all), (Steps{500, 1000}));
  // A half of the newest takes no place of what is whole.
  all[3].created = now;
  EXPECT_EQ(trashed(decided(all, policy, {.now = now}), all), Steps{});
  policy.guard.foreign_min_age = {};
  EXPECT_EQ(trashed(decided(all, policy, {.now = now}), all), (Steps{500, 1000}));
  all[3].foreign = false;
  EXPECT_EQ(trashed(decided(all, last(1), {.now = now}), all), (Steps{1000, 2000})) << "ours say when they are whole";
}

TEST(Retain, AHoldEndsAtItsDate) {
  std::vector<Checkpoint> all = hourly({1, 2});
  all[0].pins = {{.until = kLater}};
  EXPECT_EQ(trashed(decided(all, last(1), {.now = kLater - kMinute}), all), Steps{});
  EXPECT_EQ(trashed(decided(all, last(1), {.now = kLater}), all), (Steps{1}));
  all[0].pins.push_back({});
  EXPECT_EQ(trashed(decided(all, last(1), {.now = kLater}), all), Steps{});
}

TEST(Retain, GuardsAddKeeps) {
  std::vector<Checkpoint> all = hourly({1, 2, 3, 4, 5});
  all[0].resume_source = true;
  Policy policy = last(1);
  policy.guard.min_keep = 3;
  EXPECT_EQ(kept(decided(all, policy), all), (Steps{1, 4, 5}));
  policy.guard.resume_source = false;
  EXPECT_EQ(kept(decided(all, policy), all), (Steps{3, 4, 5}));
  policy.guard.min_age = kHour * 2;
  EXPECT_EQ(kept(decided(all, policy, {.now = kStart + kHour * 3}), all), (Steps{3, 4, 5}));
  EXPECT_EQ(kept(decided(all, policy, {.now = kStart - kDay}), all), (Steps{1, 2, 3, 4, 5}));  // the clock went back
}

TEST(Retain, ASuccessorMustBeVerifiedWhereThatIsAskedFor) {
  std::vector<Checkpoint> all = hourly({1, 2, 3, 4});
  Policy policy = last(1);
  policy.guard.require_verified_successor = true;
  EXPECT_EQ(trashed(decided(all, policy), all), Steps{});
  all[2].state = State::verified;
  EXPECT_EQ(trashed(decided(all, policy), all), (Steps{1, 2}));
}

TEST(Retain, AStaleHigherStepDoesNotWinAfterARollBack) {
  // 1000 to 3000, then back to 1000 and on: 1500, 2000 in series 1.
  std::vector<Checkpoint> all = hourly({1000, 2000, 3000, 1500, 2000});
  for (std::size_t i = 0; i < all.size(); ++i) all[i].generation = i + 1;
  for (std::size_t i = 3; i < 5; ++i) {
    all[i].series = 1;
    all[i].series_from = 1000;
    all[i].id += "b";
  }
  const Policy policy = last(2);
  Retention plan = decided(all, policy);
  EXPECT_EQ(plan.decisions[1].action, Action::trash);
  EXPECT_EQ(plan.decisions[2].action, Action::trash);
  EXPECT_EQ(plan.decisions[0].action, Action::trash);  // not superseded, but third of two
  EXPECT_EQ(kept(plan, all), (Steps{1500, 2000}));
  EXPECT_EQ(why_of(plan, all, policy, 2), "superseded: a later series began before step 3000");
  // They stay until their grace has passed since series 1 began.
  plan = decided(all, policy, {.now = all[3].created + kHour * 23});
  EXPECT_EQ(trashed(plan, all), (Steps{1000}));
  // The last verified one of what was left behind stays until it is dropped by name.
  all[1].state = State::verified;
  EXPECT_EQ(trashed(decided(all, policy), all), (Steps{1000, 3000}));
  EXPECT_EQ(trashed(decided(all, policy, {.now = kLater, .drop_series = {0}}), all), (Steps{1000, 2000, 3000}));
  // A tag is a person's word about that one checkpoint.
  Policy tags = policy;
  tags.keep.push_back(rule(Kind::tags_any));
  tags.keep.back().tags = {"paper"};
  all[2].tags = {"paper"};
  EXPECT_EQ(trashed(decided(all, tags), all), (Steps{1000}));
}

TEST(Retain, GoingBackToWhatWasSupersededLeavesTheOtherBranchBehind) {
  // 100 to 500; back to 200: 250, 260; then on from 500: 600.
  std::vector<Checkpoint> all = hourly({100, 200, 300, 400, 500, 250, 260, 600});
  for (std::size_t i = 0; i < all.size(); ++i) all[i].generation = i + 1;
  for (std::size_t i = 5; i < 7; ++i) {
    all[i].series = 1;
    all[i].series_from = 200;
  }
  all[7].series = 2;
  all[7].series_from = 500;
  EXPECT_EQ(kept(decided(all, last(9)), all), (Steps{100, 200, 250, 260, 600})) << "as far as series_from tells";
  all[7].series_after = 0;
  EXPECT_EQ(kept(decided(all, last(9)), all), (Steps{100, 200, 300, 400, 500, 600}));
  // The other way round once more: series 3 from 260.
  all.push_back(all[7]);
  all[8].id += "b";
  all[8].step = 270;
  all[8].generation = 9;
  all[8].series = 3;
  all[8].series_from = 260;
  all[8].series_after = 1;
  EXPECT_EQ(kept(decided(all, last(9)), all), (Steps{100, 200, 250, 260, 270}));
}

TEST(Retain, TheGraceOfWhatIsSupersededCountsFromTheCommit) {
  std::vector<Checkpoint> all = hourly({1000, 2000, 1500, 1600});
  for (std::size_t i = 2; i < 4; ++i) {  // imported today, of last week, and one of 1971
    all[i].series = 1;
    all[i].series_from = 1000;
    all[i].generation = i + 10;
    all[i].committed = kLater;
  }
  all[3].created = Time{} + kDay * 365;
  EXPECT_EQ(trashed(decided(all, last(9), {.now = kLater + kHour * 23}), all), Steps{});
  EXPECT_EQ(trashed(decided(all, last(9), {.now = kLater + kHour * 25}), all), (Steps{2000}));
}

TEST(Retain, TimesFromTheEndsOfSixtyFourBitsDeleteNothingThatIsGuarded) {
  std::vector<Checkpoint> all = hourly({1000, 2000, 1500, 1600});
  all[0].created = Time::min();
  all[2].series = all[3].series = 1;
  all[2].series_from = all[3].series_from = 1000;
  all[2].created = all[3].created = Time::max();
  Policy policy = last(1);
  policy.keep.push_back(rule(Kind::every));
  policy.keep.back().duration = kHour;
  policy.keep.push_back(rule(Kind::within));
  policy.keep.back().duration = Duration::max();
  policy.guard.min_age = Duration::max();
  for (const Time now : {Time::min(), kStart, Time::max()}) {
    const Retention plan = decided(all, policy, {.now = now});
    EXPECT_EQ(plan.decisions[3].action, Action::keep);
    EXPECT_FALSE(why_of(plan, all, policy, 1).empty());
  }
}

TEST(Retain, ASeriesThatBeganAtNothingSupersedesNothing) {
  std::vector<Checkpoint> all = hourly({1000, 2000, 10});
  all[2].series = 1;
  EXPECT_EQ(kept(decided(all, last(2)), all), (Steps{10, 2000}));
}

TEST(Retain, EachGroupIsDecidedByItself) {
  std::vector<Checkpoint> all = hourly({1, 2, 3, 4});
  all[0].run = all[1].run = "other";
  EXPECT_EQ(kept(decided(all, last(1)), all), (Steps{2, 4}));
  Policy joined = last(1);
  joined.group_by = {};
  EXPECT_EQ(kept(decided(all, joined), all), (Steps{4}));
}

TEST(Retain, PressureBreaksRulesInTheirOrderOldestFirst) {
  std::vector<Checkpoint> all = hourly({1, 2, 3, 4, 5, 6});  // 10 GiB each
  Policy policy = last(4);
  policy.keep.push_back(rule(Kind::daily, 1));
  policy.keep.push_back(rule(Kind::steps));
  policy.keep[2].steps = {1};
  policy.pressure.max_size = Amount{.bytes = 30ull << 30};
  Retention plan = decided(all, policy);
  EXPECT_EQ(kept(plan, all), (Steps{1, 5, 6}));
  EXPECT_EQ(why_of(plan, all, policy, 3), "space is short; else kept: in the newest 4 (3rd)");
  EXPECT_TRUE(plan.warnings.empty());
  EXPECT_EQ(plan.kept_bytes, 30ull << 30);
  policy.pressure.max_size = Amount{.bytes = 5ull << 30};
  plan = decided(all, policy);
  EXPECT_EQ(kept(plan, all), (Steps{1, 6}));  // milestones are never given up, nor the newest
  EXPECT_EQ(plan.warnings.size(), 1u);
}

TEST(Retain, PressureCountsWhatIsFreeAndWhatWillBe) {
  std::vector<Checkpoint> all = hourly({1, 2, 3, 4});
  Policy policy = last(4);
  policy.pressure.min_free = Amount{.percent = 30};
  Situation situation{.now = kLater, .space = Space{.free_bytes = 5ull << 30, .total_bytes = 100ull << 30}};
  EXPECT_EQ(trashed(decided(all, policy, situation), all), (Steps{1, 2, 3}));
  situation.space->trash_bytes = 16ull << 30;
  EXPECT_EQ(trashed(decided(all, policy, situation), all), (Steps{1}));
  policy.pressure.min_free.reset();
  policy.pressure.headroom = 2.5;
  EXPECT_EQ(trashed(decided(all, policy, situation), all), (Steps{1}));
  situation.space.reset();
  EXPECT_EQ(decided(all, policy, situation).warnings.size(), 1u);
}

TEST(Retain, OldOptimizersAreDroppedAndWhatIsGuardedStaysWhole) {
  std::vector<Checkpoint> all = hourly({1, 2, 3, 4});
  all[1].optimizer_bytes = 0;
  all[2].pins = {{}};
  Policy policy = last(4);
  policy.drop_optimizer_after = kDay * 7;
  const Retention plan = decided(all, policy);
  EXPECT_EQ(steps_with(plan, all, {Action::demote}), (Steps{1}));
  EXPECT_EQ(plan.freed_bytes, 6ull << 30);
  EXPECT_EQ(why_of(plan, all, policy, 0), "in the newest 4 (4th); weights only: 30 d old");
  EXPECT_EQ(steps_with(decided(all, policy, {.now = kStart + kDay}), all, {Action::demote}), Steps{});
}

TEST(Retain, TheFirstRunOfAPolicyDeletesNoMoreThanHalfUnlessApproved) {
  const std::vector<Checkpoint> all = hourly({1, 2, 3, 4});
  EXPECT_FALSE(decided(all, last(2), {.now = kLater, .first_run = true}).aborted);
  const Retention plan = decided(all, last(1), {.now = kLater, .first_run = true});
  EXPECT_EQ(plan.aborted, "this policy is new or changed and would delete 3 of 4 checkpoints (limit 50%)");
  Policy demoting = last(3);
  demoting.drop_optimizer_after = kDay * 7;
  EXPECT_EQ(decided(all, demoting, {.now = kLater, .first_run = true}).aborted,
            "this policy is new or changed and would delete 1 of 4 checkpoints and drop the optimizer of 2 (limit "
            "50%)");
  EXPECT_FALSE(decided(all, last(1), {.now = kLater, .first_run = true, .approved = true}).aborted);
  EXPECT_FALSE(decided(all, last(1), {.now = kLater}).aborted);
}

TEST(Retain, DecisionsAreToldAsInTheManual) {
  std::vector<Checkpoint> all = hourly({38000, 39000, 40000, 41000});
  const double losses[] = {2.3, 2.2, 2.113, 2.15};
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].metrics = {{"eval/loss", losses[i]}};
    all[i].created = kStart + kMinute * 10 * static_cast<int>(i);
  }
  all[3].state = State::verified;
  Policy policy = last(1);
  policy.keep[0].id = "recent";
  policy.keep.push_back(rule(Kind::every_steps));
  policy.keep.back().id = "period";
  policy.keep.back().step_interval = 10000;
  policy.keep.push_back(rule(Kind::hourly, 24));
  policy.keep.back().id = "gfs";
  policy.keep.back().oldest_if_short = false;
  policy.keep.push_back(rule(Kind::best, 1));
  policy.keep.back().metric = "eval/loss";
  const Retention plan = decided(all, policy);
  EXPECT_EQ(
      why_of(plan, all, policy, 3),
      "in the newest 1 (1st); newest of hour 2026-01-01T00 (1st of 24); the newest of its run; the newest verified of "
      "its run");
  EXPECT_EQ(why_of(plan, all, policy, 2), "a multiple of 10000; in the best 1 by eval/loss (1st: 2.113)");
  EXPECT_EQ(
      why_of(plan, all, policy, 1),
      "not in the newest 1 (3rd); not a multiple of 10000; not the newest of hour 2026-01-01T00 (step 41000 is); not in "
      "the best 1 by eval/loss (3rd)");
}

TEST(Retain, WhatAPersonNamedGoesAndEverythingElseStays) {
  std::vector<Checkpoint> all = hourly({1, 2, 3, 4, 5, 6});
  all[0].pins.push_back({});
  all[2].state = State::corrupt;
  all[3].undeleted_until = kLater + kHour;
  Policy policy = last(1);
  policy.keep[0].count.reset();
  Situation situation{.now = kLater, .approved = true, .include_damaged = true};
  situation.chosen = {true, true, true, true, false, true};
  const Retention plan = decided(all, policy, situation);
  EXPECT_EQ(trashed(plan, all), (Steps{2, 3, 4}));
  EXPECT_EQ(why_of(plan, all, policy, 1), "deleted by name");
  EXPECT_EQ(why_of(plan, all, policy, 0), "pinned (no rule keeps it)");
  EXPECT_EQ(why_of(plan, all, policy, 5), "the newest of its run (no rule keeps it)");
  EXPECT_EQ(why_of(plan, all, policy, 4), "not named");
  // Damaged ones that were not named stay, too.
  situation.chosen = {false, true, false, false, false, false};
  EXPECT_EQ(trashed(decided(all, policy, situation), all), (Steps{2}));
}

TEST(Retain, WhatIsSupersededGoesByNameInItsGrace) {
  std::vector<Checkpoint> all = hourly({1, 2, 3});
  all.push_back(saved(2, kHour * 3));
  all.back().id = "again";
  all.back().series = 1;
  all.back().series_from = 1;
  all.back().generation = 9;
  all[2].state = State::verified;
  Policy policy = last(1);
  policy.keep[0].count.reset();
  Situation situation{.now = kStart + kHour * 4, .approved = true, .chosen = {false, false, true, false}};
  EXPECT_EQ(trashed(decided(all, policy, situation), all), (Steps{3}));
  situation.chosen.clear();
  EXPECT_EQ(trashed(decided(all, policy, situation), all), Steps{});
}

TEST(Retain, WhatWasRestoredStaysUntilItsNewGraceIsOver) {
  std::vector<Checkpoint> all = hourly({1, 2, 3});
  all[0].undeleted_until = kLater + kHour;
  all[1].undeleted_until = kLater;
  const Policy policy = last(1);
  const Retention plan = decided(all, policy);
  EXPECT_EQ(trashed(plan, all), (Steps{2}));
  EXPECT_EQ(why_of(plan, all, policy, 0), "restored from the trash; 60 min of its new grace left (no rule keeps it)");
}

TEST(Retain, AHundredThousandCheckpointsArePlannedInOrderNLogN) {
  std::vector<Checkpoint> all;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    all.push_back(saved(i * 10, kMinute * 7 * static_cast<int>(i)));
    all.back().metrics = {{"loss", std::fabs(std::sin(static_cast<double>(i)))}};
  }
  Policy policy = last(10);
  for (const Kind kind : {Kind::hourly, Kind::daily, Kind::weekly, Kind::monthly, Kind::yearly})
    policy.keep.push_back(rule(kind, 24));
  policy.keep.push_back(rule(Kind::best, 5));
  policy.keep.back().metric = "loss";
  policy.keep.push_back(rule(Kind::every_steps));
  policy.keep.back().step_interval = 5000;
  policy.keep.back().step_mode = Rule::StepMode::closest;
  policy.pressure.max_size = Amount{.bytes = 5ull << 40};
  const auto begin = std::chrono::steady_clock::now();
  const Retention plan = decided(all, policy, {.now = kStart + kDay * 600});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  RecordProperty("plan_s", std::to_string(took.count()));
  EXPECT_GT(plan.trash_count, 90'000u);
  EXPECT_EQ(plan.decisions.back().action, Action::keep);
  EXPECT_LT(took.count(), 60) << "what is quadratic takes minutes";
}

}  // namespace
}  // namespace ckpt::catalog
