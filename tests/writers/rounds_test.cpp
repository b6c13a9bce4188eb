// The rounds of a job's saves, without saves.
#include "writers/rounds.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/thread_comm.hpp"

namespace ckpt::test {
namespace {

using namespace std::chrono_literals;
using Vote = Rounds::Vote;

/// A rank's side of rounds, as a test sees it.
struct Side {
  Rounds::Progress here{};
  std::vector<Rounds::Progress> acted{};
  int steps = 0;  // that still follow
  int looks = 0;
  std::vector<Errc> losses{};
  Rounds rounds;

  explicit Side(Comm& comm)
      : rounds(comm, 10s,
               {.progress = [this] { return here; },
                .act = [this](const Rounds::Progress& of_all) -> Result<bool> {
                  acted.push_back(of_all);
                  return steps != 0 && steps-- > 0;
                },
                .lose = [this](const Error& error) { losses.push_back(error.code); },
                .poll = [this] { ++looks; }}) {}
};

TEST(Rounds, AVoteOfOneRankIsTheResultOfTheNextCallOnAll) {
  const ThreadRanks ranks(3);
  ranks.run([](Comm& comm) {
    Side side(comm);
    std::vector<Vote> results;
    for (int call = 0; call < 4; ++call) {
      const auto result =
          side.rounds.round({.stop = call == 1 && comm.rank() == 2, .due = call == 0 && comm.is_root()});
      ASSERT_TRUE(result) << result.error().message;
      results.push_back(*result);
    }
    ASSERT_TRUE(side.rounds.finish_pending());
    for (int call = 0; call < 4; ++call) {
      EXPECT_EQ(results[static_cast<std::size_t>(call)].due, call == 1) << call;
      EXPECT_EQ(results[static_cast<std::size_t>(call)].stop, call == 2) << call;
    }
  });
}

TEST(Rounds, GoOnAsLongAsSomethingFollows) {
  const ThreadRanks ranks(3);
  ranks.run([](Comm& comm) {
    Side side(comm);
    side.steps = 5;
    ASSERT_TRUE(side.rounds.settle());
    EXPECT_EQ(side.acted.size(), 6U);  // the last one finds nothing
    side.acted.clear();
    side.steps = 2;
    ASSERT_TRUE(side.rounds.round({.stop = comm.rank() == 1}));  // starts one
    EXPECT_TRUE(side.acted.empty());
    const auto result = side.rounds.round({});
    ASSERT_TRUE(result);
    EXPECT_TRUE(result->stop);
    EXPECT_EQ(side.acted.size(), 3U);
    ASSERT_TRUE(side.rounds.finish_pending());
  });
}

TEST(Rounds, ActOnTheProgressOfTheSlowestRank) {
  const ThreadRanks ranks(3);
  ranks.run([](Comm& comm) {
    Side side(comm);
    for (int call = 0; call < 4; ++call) {
      side.here = {.written = call >= comm.rank(), .published = true, .drained = comm.is_root()};
      ASSERT_TRUE(side.rounds.round({}));
    }
    ASSERT_TRUE(side.rounds.finish_pending());
    ASSERT_EQ(side.acted.size(), 4U);
    for (std::size_t call = 0; call < 4; ++call) {
      EXPECT_EQ(side.acted[call].written, call >= 2) << call;
      EXPECT_TRUE(side.acted[call].published);
      EXPECT_FALSE(side.acted[call].drained);
    }
  });
}

TEST(Rounds, AreRefusedWhereRanksHaveEndedDifferentSaves) {
  const ThreadRanks ranks(2);
  ranks.run([](Comm& comm) {
    Side side(comm);
    side.here.ended = comm.is_root() ? 4 : 5;
    ASSERT_TRUE(side.rounds.round({}));
    const auto result = side.rounds.round({});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::internal);
    EXPECT_TRUE(side.acted.empty());
    EXPECT_TRUE(side.losses.empty());
  });
}

TEST(Rounds, AVoteCompletedBeforeItsTurnIsKept) {
  const ThreadRanks ranks(2);
  ranks.run([](Comm& comm) {
    Side side(comm);
    ASSERT_TRUE(side.rounds.round({.stop = true, .due = true}));
    ASSERT_TRUE(side.rounds.finish_pending());
    ASSERT_TRUE(side.rounds.finish_pending());  // none is in flight
    side.rounds.drop_due();
    const auto result = side.rounds.round({});
    ASSERT_TRUE(result);
    EXPECT_TRUE(result->stop);
    EXPECT_FALSE(result->due);
    const auto next = side.rounds.round({});
    ASSERT_TRUE(next);
    EXPECT_FALSE(next->stop);
  });
}

TEST(Rounds, WaitEndsOnAllRanksWhenOneRunsOutOfTime) {
  const ThreadRanks ranks(2);
  ranks.run([](Comm& comm) {
    Side side(comm);
    const SaveEvent never;
    const auto waited = side.rounds.wait(never, comm.is_root() ? 0ms : std::chrono::milliseconds(1h), "too late");
    ASSERT_FALSE(waited);
    EXPECT_EQ(waited.error().code, Errc::locked);
    EXPECT_EQ(waited.error().message, "too late");
  });
}

TEST(Rounds, WaitEndsWhenTheEventIsKnownWithItsOutcome) {
  const ThreadRanks ranks(2);
  ranks.run([](Comm& comm) {
    SaveEvent event;
    Rounds rounds(comm, 10s,
                  {.progress = [] { return Rounds::Progress{}; },
                   .act = [&](const Rounds::Progress&) -> Result<bool> {
                     event.complete(fail(Errc::no_space, "full"));
                     return true;
                   },
                   .lose = [](const Error&) {},
                   .poll = [] {}});
    const auto waited = rounds.wait(event, 1h, "too late", true);
    ASSERT_FALSE(waited);
    EXPECT_EQ(waited.error().code, Errc::no_space);
    EXPECT_TRUE(*event.reported_mark());
  });
}

TEST(Rounds, ALostRankEndsWhatNeedsTheOthersOnce) {
  const ThreadRanks ranks(2);
  ranks.lose(1, 1, ThreadRanks::Loss::refused);
  ranks.run([](Comm& comm) {
    Side side(comm);
    Result<Vote> result = side.rounds.round({});
    for (int call = 0; call < 3 && result; ++call) result = side.rounds.round({});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::peer_failed);
    EXPECT_EQ(side.losses, std::vector<Errc>{Errc::peer_failed});
  });
}

TEST(Rounds, AFailureThatAllRanksHaveAgreedOnIsNoLoss) {
  const auto comm = Comm::solo();
  Side side(*comm);
  const Error error = side.rounds.lose({.code = Errc::peer_failed, .message = "m", .verdict = Errc::no_space});
  EXPECT_EQ(error.message, "m");
  EXPECT_TRUE(side.losses.empty());
}

TEST(Rounds, OneRankHasItsVoteAtOnceAndLooks) {
  const auto comm = Comm::solo();
  Side side(*comm);
  const auto result = side.rounds.round({.stop = true});
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->stop);
  EXPECT_EQ(side.looks, 1);
  EXPECT_TRUE(side.acted.empty());
}

}  // namespace
}  // namespace ckpt::test
