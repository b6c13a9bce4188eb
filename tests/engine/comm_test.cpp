// Comm over any table: here ranks are threads.
#include "engine/comm/comm.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/comm_text.hpp"
#include "engine/comm/heartbeat.hpp"
#include "engine/comm/message.hpp"
#include "support/thread_comm.hpp"

namespace ckpt {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Deadline in(milliseconds time) {
  return steady_clock::now() + time;
}
Deadline soon_enough() {
  return in(std::chrono::seconds(60));
}

/// What rank `rank` says in a gather: sizes differ, some are empty.
std::string speech(int rank, std::size_t bytes_a_rank) {
  std::string text;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rank) * bytes_a_rank; ++i) {
    text += static_cast<char>('a' + (i * 7 + static_cast<std::size_t>(rank)) % 26);
  }
  return text;
}

TEST(Comm, OneRankHasEverythingItself) {
  const auto comm = Comm::solo();
  EXPECT_EQ(comm->ranks(), 1);
  EXPECT_TRUE(comm->is_root());
  std::uint64_t values[2] = {3, 4};
  ASSERT_TRUE(comm->max(values, soon_enough()));
  EXPECT_EQ(values[1], 4U);
  const auto all = comm->gather("mine", soon_enough());
  ASSERT_TRUE(all);
  EXPECT_EQ(*all, std::vector<std::string>{"mine"});
  std::string text = "to all";
  ASSERT_TRUE(comm->broadcast(text, soon_enough()));
  EXPECT_EQ(text, "to all");
  EXPECT_TRUE(agree(*comm, soon_enough(), {}));
  EXPECT_EQ(agree(*comm, soon_enough(), fail(Errc::no_space, "full")).error().code, Errc::no_space);
}

class CommOf : public testing::TestWithParam<int> {};

TEST_P(CommOf, MaxIsTheSameEverywhere) {
  const ThreadRanks ranks(GetParam());
  ranks.run([](Comm& comm) {
    const auto rank = static_cast<std::uint64_t>(comm.rank());
    for (std::uint64_t round = 0; round < 20; ++round) {
      std::uint64_t values[3] = {rank, 100 - rank, round};
      ASSERT_TRUE(comm.max(values, soon_enough()));
      EXPECT_EQ(values[0], static_cast<std::uint64_t>(comm.ranks() - 1));
      EXPECT_EQ(values[1], 100U);
      EXPECT_EQ(values[2], round);
    }
  });
}

TEST_P(CommOf, RankZeroGathersMessagesOfAnySizeInRankOrder) {
  for (const std::size_t bytes : {0U, 1U, 5000U}) {
    const ThreadRanks ranks(GetParam());
    ranks.run([&](Comm& comm) {
      const auto all = comm.gather(speech(comm.rank(), bytes), soon_enough());
      ASSERT_TRUE(all);
      ASSERT_EQ(all->size(), comm.is_root() ? static_cast<std::size_t>(comm.ranks()) : 0U);
      for (std::size_t rank = 0; rank < all->size(); ++rank) {
        EXPECT_EQ((*all)[rank], speech(static_cast<int>(rank), bytes)) << rank;
      }
    });
  }
}

TEST_P(CommOf, BroadcastFitsMessagesAtEveryEdgeOfItsRounds) {
  for (const std::size_t bytes : {0U, 1U, 4088U, 4089U, 9000U}) {
    const ThreadRanks ranks(GetParam());
    ranks.run([&](Comm& comm) {
      std::string text = comm.is_root() ? speech(1, bytes) : "before";
      ASSERT_TRUE(comm.broadcast(text, soon_enough()));
      EXPECT_EQ(text, speech(1, bytes));
    });
  }
}

TEST_P(CommOf, AgreementWithoutFailureIsSuccessForAll) {
  const ThreadRanks ranks(GetParam());
  ranks.run([](Comm& comm) { EXPECT_TRUE(agree(comm, soon_enough(), {})); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommOf, testing::Values(1, 2, 3, 5), testing::PrintToStringParamName());

TEST(Comm, LongMessagesTravelInRounds) {
  const ThreadRanks ranks(2);
  const std::string message = std::string((std::size_t{64} << 20) + 5000, 'l') + "!";
  ranks.run([&](Comm& comm) {
    const auto all = comm.gather(comm.rank() == 1 ? message : "short", soon_enough());
    ASSERT_TRUE(all);
    if (comm.is_root()) {
      EXPECT_EQ(all->front(), "short");
      EXPECT_TRUE(all->back() == message);
    }
    std::string text = comm.is_root() ? message : "before";
    ASSERT_TRUE(comm.broadcast(text, soon_enough()));
    EXPECT_TRUE(text == message);
  });
}

TEST(Agree, AllRanksLearnTheFailureAndEndWithOneCode) {
  for (int failing = 0; failing < 3; ++failing) {
    const ThreadRanks ranks(3);
    ranks.run([&](Comm& comm) {
      Result<> mine;
      if (comm.rank() == failing) {
        mine = fail({.code = Errc::no_space,
                     .message = "out/a: allocate: No space left on device",
                     .file = "out/a",
                     .offset = 4096,
                     .tensor = "w",
                     .hint = "free some"});
      }
      const auto verdict = agree(comm, soon_enough(), std::move(mine));
      ASSERT_FALSE(verdict);
      const Error& error = verdict.error();
      EXPECT_EQ(exit_code(error), 14);
      EXPECT_EQ(error.file, "out/a");
      EXPECT_EQ(error.offset, 4096U);
      EXPECT_EQ(error.tensor, "w");
      EXPECT_EQ(error.hint, "free some");
      if (comm.rank() == failing) {
        EXPECT_EQ(error.code, Errc::no_space);
        EXPECT_EQ(error.message, "out/a: allocate: No space left on device");
      } else {
        EXPECT_EQ(error.code, Errc::peer_failed);
        EXPECT_EQ(error.message, "rank " + std::to_string(failing) + ": out/a: allocate: No space left on device");
      }
    });
  }
}

TEST(Agree, WhereSeveralFailTheLowestRankGivesTheCode) {
  const ThreadRanks ranks(4);
  ranks.run([](Comm& comm) {
    Result<> mine;
    if (comm.rank() == 1) mine = fail(Errc::corrupt, "one");
    if (comm.rank() == 3) mine = fail(Errc::no_space, "three");
    const auto verdict = agree(comm, soon_enough(), std::move(mine));
    ASSERT_FALSE(verdict);
    EXPECT_EQ(exit_code(verdict.error()), 15);
    EXPECT_EQ(verdict.error().code, comm.rank() == 1   ? Errc::corrupt
                                    : comm.rank() == 3 ? Errc::no_space
                                                       : Errc::peer_failed);
  });
}

TEST(LostRank, OthersGetPeerFailedWithinTheDeadlineAndAtOnceFromThenOn) {
  const ThreadRanks ranks(3);
  ranks.run([](Comm& comm) {
    if (comm.rank() == 1) return;  // never joins
    const auto start = steady_clock::now();
    const auto verdict = agree(comm, in(milliseconds(200)), {});
    ASSERT_FALSE(verdict);
    EXPECT_EQ(verdict.error().code, Errc::peer_failed);
    EXPECT_GE(steady_clock::now() - start, milliseconds(200));
    std::uint64_t value = 1;
    std::string text = "x";
    EXPECT_EQ(comm.max({&value, 1}, soon_enough()).error().code, Errc::peer_failed);
    EXPECT_EQ(comm.gather("x", soon_enough()).error().code, Errc::peer_failed);
    EXPECT_EQ(comm.broadcast(text, soon_enough()).error().code, Errc::peer_failed);
    EXPECT_EQ(comm.start_max({&value, 1}).error().code, Errc::peer_failed);
    EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(20)) << "waited for a lost rank again";
  });
}

TEST(LostRank, AFailedRankKeepsItsOwnError) {
  const ThreadRanks ranks(2);
  ranks.run([](Comm& comm) {
    if (comm.rank() == 1) return;
    const auto verdict = agree(comm, in(milliseconds(50)), fail(Errc::corrupt, "mine"));
    ASSERT_FALSE(verdict);
    EXPECT_EQ(verdict.error().code, Errc::corrupt);
  });
}

TEST(LostRank, ALostConnectionIsPeerFailed) {
  const ThreadRanks ranks(2);
  ranks.run([&](Comm& comm) {
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(20));
      ranks.disconnect();
      return;
    }
    std::uint64_t value = 1;
    EXPECT_EQ(comm.max({&value, 1}, soon_enough()).error().code, Errc::peer_failed);
  });
}

TEST(PendingMax, TellsWhenItIsDoneAndOnlyThenWritesTheValues) {
  const ThreadRanks ranks(2);
  std::latch first_tested(1);
  ranks.run([&](Comm& comm) {
    std::uint64_t value = static_cast<std::uint64_t>(comm.rank()) + 1;
    if (comm.rank() == 1) first_tested.wait();
    auto pending = comm.start_max({&value, 1});
    ASSERT_TRUE(pending);
    if (comm.rank() == 0) {
      EXPECT_EQ(pending->test().value_or(true), false);
      EXPECT_EQ(value, 1U);
      first_tested.count_down();
    }
    while (!pending->test().value_or(true)) std::this_thread::yield();
    EXPECT_FALSE(pending->active());
    EXPECT_EQ(value, 2U);
    EXPECT_TRUE(pending->test().value_or(false)) << "done stays done";
  });
}

TEST(PendingMax, GivenUpItNeverTouchesTheCallersValues) {
  const ThreadRanks ranks(2);
  std::latch given_up(1);
  ranks.run([&](Comm& comm) {
    if (comm.rank() == 0) {
      auto values = std::make_unique<std::uint64_t>(5);
      auto pending = comm.start_max({values.get(), 1});
      ASSERT_TRUE(pending);
      *pending = Comm::Pending();  // gives it up
      values.reset();
      given_up.count_down();
      EXPECT_EQ(comm.gather("x", soon_enough()).error().code, Errc::peer_failed);
      return;
    }
    given_up.wait();
    std::uint64_t value = 7;
    EXPECT_TRUE(comm.max({&value, 1}, soon_enough()));  // completes it: writes to what rank 0 left behind
  });
}

// --- messages --------------------------------------------------------------------------------------------------------

/// Tests until it is done.
Result<> finish(Message& message) {
  const Deadline deadline = soon_enough();
  for (;;) {
    CKPT_TRY(const bool done, message.test());
    if (done) return {};
    if (steady_clock::now() > deadline) return fail(Errc::internal, "not done in a minute");
    std::this_thread::yield();
  }
}

void fill(Message& message, const std::string& text) {
  std::memcpy(message.room().data(), text.data(), text.size());
}
std::string text_of(const Message& message, std::size_t bytes) {
  return {reinterpret_cast<const char*>(message.room().data()), bytes};
}

TEST(Messages, OfAPairArriveInTheirOrderBesideACollective) {
  const ThreadRanks ranks(3);
  ranks.run([](Comm& comm) {
    ASSERT_TRUE(comm.has_messages());
    std::uint64_t value = static_cast<std::uint64_t>(comm.rank());
    auto pending = comm.start_max({&value, 1});
    ASSERT_TRUE(pending);
    const int to = (comm.rank() + 1) % 3;
    const int from = (comm.rank() + 2) % 3;
    Message out[2] = {{comm, 8}, {comm, 8}};
    Message in[2] = {{comm, 8}, {comm, 8}};
    for (std::size_t turn = 0; turn < 10; ++turn) {
      for (std::size_t i = 0; i < 2; ++i) {
        ASSERT_TRUE(in[i].receive(i + 1, from));
        fill(out[i], i == 0 ? "a" : "b" + std::to_string(comm.rank()));
        ASSERT_TRUE(out[i].send(i + 1, to));
        EXPECT_TRUE(out[i].active());
      }
      for (std::size_t i = 0; i < 2; ++i) {
        ASSERT_TRUE(finish(out[i]));
        ASSERT_TRUE(finish(in[i]));
        EXPECT_FALSE(in[i].active());
      }
      EXPECT_EQ(text_of(in[0], 1), "a");
      EXPECT_EQ(text_of(in[1], 2), "b" + std::to_string(from));
    }
    while (!pending->test().value_or(true)) std::this_thread::yield();
    EXPECT_EQ(value, 2u);
  });
}

TEST(Messages, GivenUpOneLosesTheRanksAndItsBytesStay) {
  const ThreadRanks ranks(2);
  std::latch given_up(1);
  ranks.run([&](Comm& comm) {
    if (comm.rank() == 0) {
      {
        Message message(comm, 4);
        ASSERT_TRUE(message.receive(4, 1));
      }
      given_up.count_down();
      EXPECT_TRUE(comm.is_lost());
      Message next(comm, 4);
      EXPECT_EQ(next.receive(4, 1).error().code, Errc::peer_failed);
      EXPECT_EQ(next.send(4, 1).error().code, Errc::peer_failed);
      return;
    }
    given_up.wait();
    Message message(comm, 4);
    fill(message, "late");
    ASSERT_TRUE(message.send(4, 0));  // writes to what rank 0 left behind
    EXPECT_TRUE(finish(message));
    EXPECT_FALSE(comm.is_lost());
  });
}

TEST(Messages, ATableThatEndsBeforeThemHasNone) {
  const ThreadRanks ranks(1);
  ranks.run_tables([](ckpt_comm_table table) { EXPECT_TRUE(Comm(table).has_messages()); });
  const ThreadRanks older(1);
  older.run_tables([](ckpt_comm_table table) {
    table.size = offsetof(ckpt_comm_table, start_receive);
    EXPECT_FALSE(Comm(table).has_messages());
  });
  const ThreadRanks unset(1);
  unset.run_tables([](ckpt_comm_table table) {
    table.start_receive = nullptr;
    EXPECT_FALSE(Comm(table).has_messages());
  });
}

TEST(Heartbeat, TellsTheLeastIdleOfTheRanksThatAreNotDone) {
  const ThreadRanks ranks(3);
  ranks.run([](Comm& comm) {
    Heartbeat heartbeat(comm, std::chrono::seconds(60));
    const auto beat = [&](bool done, milliseconds idle) {
      // One that arrived on all ranks, and no more: the next begins on none of them before the call after.
      for (;;) {
        const auto over = heartbeat.beat(0, done, idle);
        ASSERT_TRUE(over) << over.error().message;
        if (heartbeat.least_idle() > milliseconds(0)) return;
        std::this_thread::yield();
      }
    };
    // Rank 0 has nothing to wait for any more.
    beat(comm.rank() == 0, milliseconds(comm.rank() * 4000));
    EXPECT_EQ(heartbeat.least_idle(), milliseconds(4000));
  });
}

TEST(CommText, FailuresSurviveTheTripAndDamageIsNoCrash) {
  const Error error{.code = Errc::corrupt, .message = "m", .file = "f", .offset = 7, .tensor = "t", .hint = "h"};
  const std::string text = to_text(error);
  const Error back = error_from_text(text);
  EXPECT_EQ(back.code, error.code);
  EXPECT_EQ(back.message + back.file + back.tensor + back.hint, "mfth");
  EXPECT_EQ(back.offset, 7U);
  EXPECT_FALSE(error_from_text(to_text({.code = Errc::io, .message = "m"})).offset);
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    EXPECT_EQ(error_from_text(std::string_view(text).substr(0, cut)).code, Errc::internal) << cut;
  }
  EXPECT_EQ(error_from_text(text + "x").code, Errc::internal);
}

}  // namespace
}  // namespace ckpt
