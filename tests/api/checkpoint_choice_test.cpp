// Which checkpoint a load takes on all ranks, without a run.
#include "api/run/checkpoint_choice.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/memory_io.hpp"
#include "support/thread_comm.hpp"
#include "support/tiny_checkpoint.hpp"

namespace ckpt::test {
namespace {

using namespace std::chrono_literals;

constexpr const char* kRun = "/store/run";

class CheckpointChoiceTest : public testing::Test {
 protected:
  void SetUp() override { disk.put("/store/.keep", ""); }

  std::string save(std::uint64_t step, const universal::Run& run = {.name = "run"}) {
    if (disk.text(std::string(kRun) + "/.keep") == "(none)") disk.put(std::string(kRun) + "/.keep", "");
    const auto saved = checkpoints.save(*disk.io(), {.run_directory = kRun,
                                                     .step = step,
                                                     .run = run,
                                                     .created = "2026-01-02T03:04:05.000000000Z",
                                                     .number = ++number_});
    EXPECT_TRUE(saved) << saved.error().message;
    return std::string(kRun) + "/" + saved.value_or("");
  }
  void tear(const std::string& checkpoint) {
    disk.put(checkpoint + "/manifest.json", "{ torn");
    disk.put(checkpoint + "/index/manifest.json", "{ torn");
  }
  /// Calls `body` on two ranks, whose choice has listed the run.
  template <class Body>
  void on_ranks(const Body& body, std::optional<std::uint64_t> step = {}) {
    const ThreadRanks ranks(2);
    ranks.run([&](Comm& comm) {
      const auto io = disk.io();
      std::vector<std::string> log;
      CheckpointChoice choice(
          *io, comm, {.run_directory = kRun, .step = step, .patience = 20s, .log = [&](const std::string& text) {
                        log.push_back(text);
                      }});
      const auto listed = choice.list({});
      ASSERT_TRUE(listed) << listed.error().message;
      body(choice, log);
    });
  }
  /// The step that `next` chooses, or the code of its error, negative.
  static int next_step(CheckpointChoice& choice, std::vector<std::string>& skipped) {
    const auto chosen = choice.next(skipped);
    return chosen ? static_cast<int>((*chosen)->step()) : -static_cast<int>(chosen.error().code);
  }

  const TinyCheckpoints checkpoints{};
  MemoryDisk disk{};

 private:
  std::uint64_t number_ = 0;
};

TEST_F(CheckpointChoiceTest, IsTheNewestAndThenTheOneBefore) {
  save(10);
  save(20);
  on_ranks([](CheckpointChoice& choice, const std::vector<std::string>& log) {
    std::vector<std::string> skipped;
    EXPECT_EQ(next_step(choice, skipped), 20);
    EXPECT_EQ(next_step(choice, skipped), 10);
    EXPECT_EQ(next_step(choice, skipped), -static_cast<int>(Errc::not_found));
    EXPECT_TRUE(skipped.empty());
    EXPECT_TRUE(log.empty());
  });
}

TEST_F(CheckpointChoiceTest, SkipsADamagedOneAndSaysSo) {
  save(10);
  tear(save(20));
  on_ranks([](CheckpointChoice& choice, const std::vector<std::string>& log) {
    std::vector<std::string> skipped;
    EXPECT_EQ(next_step(choice, skipped), 10);
    EXPECT_EQ(skipped.size(), 1U);
    ASSERT_EQ(log.size(), 1U);
    EXPECT_EQ(log[0].find("step-000000020.g2: cannot be used, trying the previous one: "), 0U) << log[0];
  });
}

TEST_F(CheckpointChoiceTest, SaysThatNoneCanBeUsedRatherThanThatThereIsNone) {
  tear(save(10));
  on_ranks([](CheckpointChoice& choice, const std::vector<std::string>&) {
    std::vector<std::string> skipped;
    EXPECT_EQ(next_step(choice, skipped), -static_cast<int>(Errc::corrupt));
    EXPECT_EQ(skipped.size(), 1U);
  });
}

TEST_F(CheckpointChoiceTest, TakesASupersededOneOnlyWhereThereIsNoOther) {
  save(10);
  save(30);
  save(20, {.name = "run", .series = 1, .series_from = 10});
  on_ranks([](CheckpointChoice& choice, const std::vector<std::string>&) {
    std::vector<std::string> skipped;
    EXPECT_EQ(next_step(choice, skipped), 20);
    EXPECT_EQ(next_step(choice, skipped), 10);
    EXPECT_EQ(next_step(choice, skipped), -static_cast<int>(Errc::not_found));
  });
}

TEST_F(CheckpointChoiceTest, TakesTheNewestSaveOfAStepAndNoOther) {
  save(10);
  save(30);
  save(20, {.name = "run", .series = 1, .series_from = 10});
  const std::string damaged = save(30, {.name = "run", .series = 1, .series_from = 10});
  const auto expect = [this](std::uint64_t step, std::vector<int> steps, std::size_t skipped_ones) {
    on_ranks(
        [&](CheckpointChoice& choice, const std::vector<std::string>&) {
          std::vector<std::string> skipped;
          for (const int wanted : steps) EXPECT_EQ(next_step(choice, skipped), wanted) << "step " << step;
          EXPECT_EQ(skipped.size(), skipped_ones) << "step " << step;
        },
        step);
  };
  expect(10, {10, -static_cast<int>(Errc::not_found)}, 0);
  expect(15, {-static_cast<int>(Errc::not_found)}, 0);
  expect(30, {30, -static_cast<int>(Errc::not_found)}, 0);
  tear(damaged);  // the superseded save of the same step is another training
  expect(30, {-static_cast<int>(Errc::corrupt)}, 1);
}

TEST_F(CheckpointChoiceTest, RanksThatWantDifferentStepsLoadNone) {
  save(10);
  save(20);
  const ThreadRanks ranks(2);
  for (const bool one_wants_the_newest : {false, true}) {
    ranks.run([&](Comm& comm) {
      const auto io = disk.io();
      std::optional<std::uint64_t> step(comm.rank() == 0 ? 10 : 20);
      if (one_wants_the_newest && comm.rank() == 0) step.reset();
      CheckpointChoice choice(*io, comm, {.run_directory = kRun, .step = step, .patience = 20s});
      const auto listed = choice.list({});
      ASSERT_FALSE(listed);
      EXPECT_EQ(listed.error().code, Errc::usage);
    });
  }
}

TEST_F(CheckpointChoiceTest, ARunDirectoryThatIsGoneIsNotAnEmptyRun) {
  const ThreadRanks ranks(2);
  ranks.run([&](Comm& comm) {
    const auto io = disk.io();
    CheckpointChoice choice(*io, comm, {.run_directory = kRun, .patience = 20s});
    const auto listed = choice.list({});
    ASSERT_FALSE(listed);
    EXPECT_EQ(exit_code(listed.error()), exit_code(Errc::io));
  });
}

TEST_F(CheckpointChoiceTest, TheFailureOfOneRankIsThatOfAll) {
  save(10);
  const ThreadRanks ranks(2);
  ranks.run([&](Comm& comm) {
    const auto io = disk.io();
    CheckpointChoice choice(*io, comm, {.run_directory = kRun, .patience = 20s});
    const Result<> mine = comm.rank() == 1 ? fail(Errc::memory, "no room") : Result<>();
    const auto listed = choice.list(mine);
    ASSERT_FALSE(listed);
    EXPECT_EQ(exit_code(listed.error()), exit_code(Errc::memory));
  });
}

TEST_F(CheckpointChoiceTest, AnOlderOneDoesNotReplaceOneThatCannotBeReadForAnotherReason) {
  save(10);
  on_ranks([](CheckpointChoice& choice, const std::vector<std::string>&) {
    std::vector<std::string> skipped;
    const Error memory{.code = Errc::memory, .message = "no room"};
    const auto kept = choice.skip("/store/run/step-000000010.g1", memory, skipped);
    ASSERT_FALSE(kept);
    EXPECT_EQ(kept.error().code, Errc::memory);
    EXPECT_TRUE(skipped.empty());
    const Error damaged{.code = Errc::checksum, .message = "damaged"};
    EXPECT_TRUE(choice.skip("/store/run/step-000000010.g1", damaged, skipped));
    EXPECT_EQ(skipped, std::vector<std::string>{"damaged"});
  });
}

}  // namespace
}  // namespace ckpt::test
