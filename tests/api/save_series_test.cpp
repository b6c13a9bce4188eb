// Which series the saves of a run belong to, by what the run held at the load and holds at the first save.
#include "api/run/save_series.hpp"

#include <gtest/gtest.h>

#include <string>

namespace ckpt::test {
namespace {

RunCheckpoint standing(std::uint64_t step, std::uint64_t generation, std::uint64_t series) {
  return {.name = {.step = step, .generation = generation},
          .id = "id" + std::to_string(generation),
          .run = universal::Run{.name = "run", .series = series},
          .copies = {"/store/run/step-" + std::to_string(step)}};
}

/// Steps 10 and 20 of series 1.
RunSeries two_steps() {
  return {.standing = {standing(20, 2, 1), standing(10, 1, 1)}, .superseded = {false, false}, .greatest = 1};
}

class SaveSeriesTest : public testing::Test {
 protected:
  const universal::Run& decided(const RunSeries& now) {
    series.decide(now);
    return *series.series();
  }
  void load(std::uint64_t step, const std::string& id) {
    series.note_loaded({.id = id, .path = "/elsewhere", .step = step}, two_steps());
  }
  std::string told{};
  SaveSeries series{"/store/run", [this](const std::string& text) { told += text; }};
};

TEST_F(SaveSeriesTest, AnEmptyRunBeginsNone) {
  EXPECT_FALSE(series.is_decided_for(1));
  const universal::Run first = decided({});
  EXPECT_TRUE(series.is_decided_for(1));
  EXPECT_FALSE(first.series_from);
  EXPECT_EQ(first.parent, "");
  EXPECT_EQ(told, "");
}

TEST_F(SaveSeriesTest, TheNewestCheckpointIsContinued) {
  load(20, "id2");
  const universal::Run next = decided(two_steps());
  EXPECT_EQ(next.series, 1U);
  EXPECT_FALSE(next.series_from);
  EXPECT_EQ(next.parent, "id2");
  EXPECT_EQ(told, "");
}

TEST_F(SaveSeriesTest, ARollBackSupersedesLaterSteps) {
  load(10, "id1");
  const universal::Run next = decided(two_steps());
  EXPECT_EQ(next.series, 2U);
  EXPECT_EQ(next.series_from, 10U);
  EXPECT_NE(told.find("after step 10 are superseded"), std::string::npos) << told;
}

TEST_F(SaveSeriesTest, ARollBackSupersedesNothingIfAnotherProcessHasSavedSince) {
  load(10, "id1");
  RunSeries now = two_steps();
  now.standing.insert(now.standing.begin(), standing(30, 3, 1));
  now.superseded.push_back(false);
  const universal::Run next = decided(now);
  EXPECT_EQ(next.series, 2U);
  EXPECT_FALSE(next.series_from);
  EXPECT_NE(told.find("another process has saved"), std::string::npos) << told;
}

TEST_F(SaveSeriesTest, ACheckpointIsKnownByItsPathWhereItsManifestIsUnreadable) {
  RunSeries at_load = two_steps();
  at_load.standing.front().id.clear();
  series.note_loaded({.id = "id2", .path = "/store/run/step-20", .step = 20}, at_load);
  EXPECT_EQ(decided(two_steps()).series, 1U);
}

TEST_F(SaveSeriesTest, ARunThatWasNotLoadedIsNotSuperseded) {
  const universal::Run next = decided(two_steps());
  EXPECT_EQ(next.series, 2U);
  EXPECT_FALSE(next.series_from);
  EXPECT_EQ(next.parent, "");
}

}  // namespace
}  // namespace ckpt::test
