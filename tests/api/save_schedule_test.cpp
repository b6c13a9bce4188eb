// When the next save is due, by a clock that the test sets.
#include "api/run/save_schedule.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "writers/save_job.hpp"

namespace ckpt::test {
namespace {

using namespace std::chrono_literals;

class SaveScheduleTest : public testing::Test {
 protected:
  SaveSchedule schedule(SaveSchedule::Options options) {
    options.clock = [this] { return SaveSchedule::Time() + 1h + time; };
    return SaveSchedule(std::move(options));
  }
  std::chrono::seconds time{0};
};

TEST_F(SaveScheduleTest, EveryRankKnowsAtOnceThatAStepIsDue) {
  SaveSchedule any = schedule({.every_steps = 10, .decides = false});
  for (const std::uint64_t step : {0UL, 9UL, 10UL, 11UL, 20UL}) {
    EXPECT_FALSE(any.vote(step, false).due) << step;
    EXPECT_EQ(any.answer(step, {}), step == 10 || step == 20) << step;
  }
}

TEST_F(SaveScheduleTest, ATimeIsVotedForOnceAndCountsFromTheBeginningOfTheLastSave) {
  SaveSchedule root = schedule({.every = 60s});
  time = 59s;
  EXPECT_FALSE(root.vote(1, false).due);
  time = 60s;
  EXPECT_TRUE(root.vote(2, false).due);
  EXPECT_FALSE(root.answer(2, {}));  // of the round before
  EXPECT_FALSE(root.vote(3, false).due);
  EXPECT_TRUE(root.answer(3, {.due = true}));
  time = 70s;
  root.begin_save(3);
  time = 129s;
  EXPECT_FALSE(root.vote(4, false).due);
  time = 130s;
  EXPECT_TRUE(root.vote(5, false).due);
}

TEST_F(SaveScheduleTest, ASaveThatTheTrainerBeginsDropsTheVote) {
  SaveSchedule root = schedule({.every = 60s});
  time = 60s;
  EXPECT_TRUE(root.vote(1, false).due);
  root.begin_save(1);
  time = 120s;
  EXPECT_TRUE(root.vote(2, false).due);
}

TEST_F(SaveScheduleTest, OnlyTheRankThatDecidesVotesByTime) {
  SaveSchedule other = schedule({.every = 60s, .decides = false});
  time = 600s;
  EXPECT_FALSE(other.vote(1, false).due);
  EXPECT_TRUE(other.answer(1, {.due = true}));
}

TEST_F(SaveScheduleTest, AStopIsSavedOnceAndRemembered) {
  SaveSchedule any = schedule({});
  EXPECT_FALSE(any.vote(1, false).stop);
  EXPECT_TRUE(any.vote(1, true).stop);
  EXPECT_FALSE(any.stop_told());
  EXPECT_TRUE(any.answer(1, {.stop = true}));
  EXPECT_TRUE(any.stop_told());
  EXPECT_FALSE(any.answer(2, {.stop = true}));
  EXPECT_FALSE(any.answer(3, {}));
  EXPECT_TRUE(any.stop_told());
}

TEST_F(SaveScheduleTest, TrainingStopsTenSecondsBeforeTheTimeLimit) {
  SaveSchedule any = schedule({.time_limit = 100s});
  time = 89s;
  EXPECT_FALSE(any.vote(1, false).stop);
  time = 90s;
  EXPECT_TRUE(any.vote(2, false).stop);
}

TEST_F(SaveScheduleTest, TrainingStopsTwoOfItsLongestSavesBeforeTheTimeLimit) {
  SaveSchedule any = schedule({.time_limit = 1000s});
  const auto save = std::make_shared<SaveJob>(Hash128{});
  any.begin_save(1);
  any.end_commit(save, 20s);
  time = 959s;
  EXPECT_FALSE(any.vote(2, false).stop);
  time = 960s;
  EXPECT_TRUE(any.vote(3, false).stop);
  // The background has taken longer than commit.
  time = 800s;
  EXPECT_FALSE(any.vote(4, false).stop);
  save->finish_writing(std::vector<Hash128>(), 99);
  save->finish_publishing(std::string("step-000000001.g1"), 1);
  EXPECT_TRUE(any.vote(5, false).stop);
  time = 799s;
  EXPECT_FALSE(any.vote(6, false).stop);
}

TEST_F(SaveScheduleTest, TheRulesOfAStoreReplaceTheOptions) {
  SaveSchedule root = schedule({.every_steps = 10, .by_store = true});
  root.set_rules({.policy = {.every_steps = 4}});
  EXPECT_FALSE(root.answer(10, {}));
  EXPECT_FALSE(root.vote(3, false).due);
  EXPECT_TRUE(root.vote(4, false).due);
}

TEST_F(SaveScheduleTest, TheStepThatWasResumedIsNotSavedAgain) {
  SaveSchedule root = schedule({.by_store = true});
  root.set_rules({.policy = {.every_steps = 4}});
  root.resumed_at(4);
  EXPECT_FALSE(root.vote(4, false).due);
  EXPECT_FALSE(root.vote(7, false).due);
  EXPECT_TRUE(root.vote(8, false).due);
}

// The best interval needs a measured save: until the first one is over no other begins.
TEST_F(SaveScheduleTest, TheBestIntervalIsMeasuredByOneSaveAtATime) {
  SaveSchedule root = schedule({.optimal = true, .mtbf_s = 3600});
  time = 1s;
  EXPECT_TRUE(root.vote(1, false).due);
  const auto save = std::make_shared<SaveJob>(Hash128{});
  root.begin_save(1);
  time = 2s;
  root.end_commit(save, 1s);
  time = 3000s;
  EXPECT_FALSE(root.vote(2, false).due);
  save->resolve(SaveOutcome{.name = "step-000000001.g1"});
  EXPECT_TRUE(root.vote(3, false).due);
}

}  // namespace
}  // namespace ckpt::test
