#include "catalog/scan/run_history.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "catalog/failure_rate.hpp"

namespace ckpt::catalog {
namespace {

using namespace std::chrono_literals;

struct Saved {
  std::uint64_t generation;
  std::uint64_t step;
  std::chrono::seconds at;
  std::string parent{};
  std::uint64_t series = 0;
};

Entry entry_of(const Saved& saved) {
  Entry out;
  out.checkpoint.id = "id" + std::to_string(saved.generation);
  out.checkpoint.generation = saved.generation;
  out.checkpoint.step = saved.step;
  out.checkpoint.series = saved.series;
  if (saved.series != 0) out.checkpoint.series_from = 0;
  out.checkpoint.created = Time(saved.at);
  out.parent = saved.parent;
  out.save = SaveCost{.plan_s = 1, .stage_s = 3, .write_s = 6, .ranks = 8};
  return out;
}

std::vector<Entry> entries_of(const std::vector<Saved>& all) {
  std::vector<Entry> out;
  for (const Saved& saved : all) out.push_back(entry_of(saved));
  return out;
}

TEST(RunHistory, AJobIsAStretchOfSavesWithOneParent) {
  // Two jobs, two hours apart: only the time in which something was saved counts, and a usual gap before each first.
  const RunHistory history = run_history(
      entries_of({{1, 100, 1000s}, {2, 200, 1104s}, {3, 300, 1208s}, {4, 400, 8408s, "id3"}, {5, 500, 8512s, "id3"}}));
  EXPECT_EQ(history.jobs, 2u);
  EXPECT_EQ(history.restarts, 1u);
  EXPECT_EQ(history.roll_backs, 0u);
  EXPECT_DOUBLE_EQ(history.uptime_s, 3 * 104 + 2 * 104);
  EXPECT_DOUBLE_EQ(history.measured.step_s, 1);  // 104 s, of which 4 are a save's stall, for 100 steps
  EXPECT_DOUBLE_EQ(history.measured.costs.stall_s, 4);
  EXPECT_DOUBLE_EQ(history.measured.costs.drain_s, 10);
  EXPECT_EQ(history.measured.saves, 5u);
}

TEST(RunHistory, ARollBackIsTheBirthOfASeries) {
  const RunHistory history = run_history(entries_of({{3, 150, 500s, "id1", 1}, {1, 100, 0s}, {2, 200, 100s}}));
  EXPECT_EQ(history.jobs, 2u);
  EXPECT_EQ(history.roll_backs, 1u);
  EXPECT_EQ(history.restarts, 1u);
}

TEST(RunHistory, ARestoreThatLeftNothingCountsAndOneThatDidIsNotCountedTwice) {
  std::vector<Entry> entries = entries_of({{1, 100, 0s}, {2, 200, 100s}, {3, 300, 900s, "id2"}});
  apply_marks(entries[1], {{.kind = Mark::Kind::restored, .at = Time(800s)}});
  EXPECT_EQ(run_history(entries).restarts, 1u);
  apply_marks(entries[2], {{.kind = Mark::Kind::restored, .at = Time(2000s)}});
  EXPECT_EQ(run_history(entries).restarts, 2u);
}

TEST(RunHistory, ClocksThatStepBackAndForeignCheckpointsTellNothing) {
  std::vector<Entry> entries = entries_of({{1, 100, 1000s}, {2, 200, 900s}, {3, 300, 1004s}});
  entries.push_back(entry_of({9, 900, 99999s, "x"}));
  entries.back().foreign = true;
  const RunHistory history = run_history(entries);
  EXPECT_EQ(history.jobs, 1u);
  EXPECT_DOUBLE_EQ(history.uptime_s, 104 + 104);
  EXPECT_EQ(run_history({}).measured.saves, 0u);
}

TEST(RunHistory, TheFailureRateIsTheCarefulBoundAndNoneWithoutARestart) {
  EXPECT_EQ(careful_mtbf({.jobs = 1, .uptime_s = 1e6}), 0);
  const RunHistory history{.jobs = 5, .restarts = 4, .uptime_s = 1e6};
  EXPECT_DOUBLE_EQ(careful_mtbf(history), estimate_mtbf({.uptime_s = 1e6, .failures = 4}).low_s);
  EXPECT_LT(careful_mtbf(history), 1e6 / 4);
}

}  // namespace
}  // namespace ckpt::catalog
