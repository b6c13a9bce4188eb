// The ranks' agreement on a commit, over a disk that only takes notes.
#include "writers/commits.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/thread_comm.hpp"
#include "writers/save_record.hpp"

namespace ckpt::test {
namespace {

using namespace std::chrono_literals;

const std::string kName = "step-000000005.g3";

struct NotedDisk final : CommitDisk {
  std::vector<std::string> deeds{};
  std::vector<std::string> records{};  // of the last publication
  Result<std::string> publication = kName;
  Result<std::optional<std::string>> found = std::optional<std::string>();

  void publish(const std::shared_ptr<SaveJob>& save, std::vector<std::string> of_ranks) override {
    deeds.emplace_back("publish");
    records = std::move(of_ranks);
    save->finish_publishing(publication, 0);
  }
  void wait() override { deeds.emplace_back("wait"); }
  void drop(const std::shared_ptr<SaveJob>& /*save*/) override { deeds.emplace_back("drop"); }
  void take_back(const std::shared_ptr<SaveJob>& /*save*/) override { deeds.emplace_back("take back"); }
  Result<std::optional<std::string>> find(const SaveJob& /*save*/) override {
    deeds.emplace_back("find");
    return found;
  }
};

using Deeds = std::vector<std::string>;

/// One rank with one save in flight.
struct Side {
  NotedDisk disk{};
  int ended = 0;
  std::shared_ptr<SaveJob> save = std::make_shared<SaveJob>(Hash128{});
  Commits commits;

  explicit Side(Comm& comm, Nodes nodes = {})
      : commits(comm, 10s, nodes, disk, [this](const auto& over) {
          ++ended;
          EXPECT_EQ(over, save);
          EXPECT_TRUE(over->resolved());
        }) {
    save->step = 5;
    save->manifest.meta.step = 5;
    save->manifest.created = "2026-01-02T03:04:05.000000000Z";
    commits.add(save);
  }
  /// Both votes.
  void write_and_publish() {
    save->finish_writing(std::vector<Hash128>(), 0);
    ASSERT_TRUE(commits.act(true, false));
    if (!commits.in_flight().empty()) {
      ASSERT_TRUE(commits.act(true, true));
    }
  }
};

TEST(Commits, RankZeroPublishesTheRecordsOfAllRanksAndAllHearTheName) {
  const ThreadRanks ranks(3);
  ranks.run([](Comm& comm) {
    Side side(comm);
    side.save->planned(comm.rank(), 0);
    side.write_and_publish();
    if (comm.is_root()) {
      ASSERT_EQ(side.disk.records.size(), 3U);
      for (int rank = 0; rank < 3; ++rank) {
        const auto record = record_from_text(side.disk.records[static_cast<std::size_t>(rank)]);
        ASSERT_TRUE(record);
        EXPECT_EQ(record->times.plan_s, rank);
      }
    }
    EXPECT_EQ(side.disk.deeds, comm.is_root() ? Deeds({"publish", "drop"}) : Deeds({"drop"}));
    ASSERT_TRUE(side.save->outcome());
    EXPECT_EQ(side.save->outcome()->name, kName);
    EXPECT_EQ(side.ended, 1);
    EXPECT_EQ(side.commits.ended_count(), 1U);
    EXPECT_TRUE(side.commits.in_flight().empty());
  });
}

TEST(Commits, NothingHappensBeforeAllRanksAreThatFar) {
  const ThreadRanks ranks(2);
  ranks.run([](Comm& comm) {
    Side side(comm);
    EXPECT_FALSE(side.commits.written());
    ASSERT_TRUE(side.commits.act(false, false));
    side.save->finish_writing(std::vector<Hash128>(), 0);
    EXPECT_TRUE(side.commits.written());
    ASSERT_TRUE(side.commits.act(false, true));  // published, though not written: of another save
    EXPECT_TRUE(side.disk.deeds.empty());
    ASSERT_TRUE(side.commits.act(true, false));
    ASSERT_TRUE(side.commits.act(true, false));  // written already
    EXPECT_EQ(side.disk.deeds, comm.is_root() ? Deeds({"publish"}) : Deeds());
    EXPECT_FALSE(side.save->resolved());
    EXPECT_EQ(side.ended, 0);
    side.commits.give_up({.code = Errc::interrupted, .message = "closed"});
  });
}

TEST(Commits, ARankWaitsOnlyForAPublicationOfItsOwn) {
  const ThreadRanks ranks(2);
  ranks.run([](Comm& comm) {
    Side side(comm);
    EXPECT_EQ(side.commits.published(), !comm.is_root());
    side.save->finish_publishing(kName, 0);
    EXPECT_TRUE(side.commits.published());
    side.commits.give_up({.code = Errc::interrupted, .message = "closed"});
    // Of no save: one may begin before the round is over.
    EXPECT_FALSE(side.commits.published());
    EXPECT_FALSE(side.commits.written());
  });
}

TEST(Commits, IfOneRankCannotWriteTheSaveFailsOnAllAndNothingIsPublished) {
  const ThreadRanks ranks(3);
  ranks.run([](Comm& comm) {
    Side side(comm);
    if (comm.rank() == 1) side.save->finish_writing(fail(Errc::no_space, "rank 1 is full"), 0);
    side.write_and_publish();
    EXPECT_EQ(side.disk.deeds, Deeds({"drop"}));
    const auto outcome = side.save->outcome();
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, comm.rank() == 1 ? Errc::no_space : Errc::peer_failed);
    EXPECT_EQ(outcome.error().verdict, Errc::no_space);
    EXPECT_NE(outcome.error().message.find("rank 1 is full"), std::string::npos);
    EXPECT_FALSE(comm.is_lost());
  });
}

TEST(Commits, IfItCannotBePublishedTheSaveFailsOnAll) {
  const ThreadRanks ranks(2);
  ranks.run([](Comm& comm) {
    Side side(comm);
    side.disk.publication = fail(Errc::io, "no rename");
    side.write_and_publish();
    const auto outcome = side.save->outcome();
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().verdict, Errc::io);
    EXPECT_EQ(side.disk.deeds, comm.is_root() ? Deeds({"publish", "drop"}) : Deeds({"drop"}));
  });
}

TEST(Commits, EachNodePublishesWhatRankZeroHasSealed) {
  const ThreadRanks ranks(3);
  ranks.run([](Comm& comm) {
    // Ranks 0 and 1 are a node, rank 2 is another one.
    Side side(comm, {.leader = comm.rank() == 2 ? 2 : 0, .several = true});
    side.write_and_publish();
    ASSERT_TRUE(side.save->outcome()) << side.save->outcome().error().message;
    EXPECT_EQ(side.disk.deeds, comm.rank() == 1 ? Deeds({"drop"}) : Deeds({"publish", "drop"}));
    EXPECT_TRUE(side.disk.records.empty());
    EXPECT_EQ(side.save->sealed.empty(), comm.rank() == 1);
  });
}

TEST(Commits, ANodeTakesItsPartBackIfAnotherCouldNotPublish) {
  const ThreadRanks ranks(3);
  ranks.run([](Comm& comm) {
    Side side(comm, {.leader = comm.rank(), .several = true});
    if (comm.rank() == 1) side.disk.publication = fail(Errc::io, "no rename");
    side.write_and_publish();
    ASSERT_FALSE(side.save->outcome());
    EXPECT_EQ(side.save->outcome().error().verdict, Errc::io);
    EXPECT_EQ(side.disk.deeds, comm.rank() == 1 ? Deeds({"publish", "drop"}) : Deeds({"publish", "take back", "drop"}));
  });
}

/// Two ranks that lose each other after rank 0 was told to publish.
template <class Check>
void lose_after_the_vote(const Result<std::optional<std::string>>& found, const Result<std::string>& publication,
                         Check check) {
  const ThreadRanks ranks(2);
  ranks.run([&](Comm& comm) {
    Side side(comm);
    side.disk.found = found;
    side.disk.publication = publication;
    side.save->finish_writing(std::vector<Hash128>(), 0);
    ASSERT_TRUE(side.commits.act(true, false));
    side.disk.deeds.clear();
    side.commits.lose({.code = Errc::peer_failed, .message = "lost"});
    EXPECT_TRUE(side.commits.in_flight().empty());
    EXPECT_EQ(side.disk.deeds, comm.is_root() ? Deeds({"wait", "drop"}) : Deeds({"find", "drop"}));
    check(comm, side.save->outcome());
  });
}

TEST(Commits, ASaveThatIsCommittedWhenRanksAreLostIsSavedOnEachThatFindsIt) {
  lose_after_the_vote(std::optional(kName), kName, [](Comm&, const Result<SaveOutcome>& outcome) {
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_EQ(outcome->name, kName);
  });
}

TEST(Commits, ASaveThatIsNotFoundWhenRanksAreLostHasFailed) {
  lose_after_the_vote(std::optional<std::string>(), fail(Errc::io, "no rename"),
                      [](Comm&, const Result<SaveOutcome>& outcome) {
                        ASSERT_FALSE(outcome);
                        EXPECT_EQ(outcome.error().code, Errc::peer_failed);
                        EXPECT_EQ(outcome.error().message, "lost");
                      });
}

TEST(Commits, ARankThatCannotLookSaysThatTheCheckpointMayExist) {
  lose_after_the_vote(fail(Errc::io, "no listing"), kName, [](Comm& comm, const Result<SaveOutcome>& outcome) {
    EXPECT_EQ(outcome.has_value(), comm.is_root());
    if (comm.is_root()) return;
    EXPECT_NE(outcome.error().message.find("it may exist nevertheless: no listing"), std::string::npos);
  });
}

TEST(Commits, OneRankTakesNoteOfWhatTheBackgroundHasSettled) {
  const auto comm = Comm::solo();
  Side side(*comm);
  side.commits.poll();
  EXPECT_EQ(side.ended, 0);
  side.save->resolve(SaveOutcome{.name = kName});
  side.commits.poll();
  EXPECT_EQ(side.ended, 1);
  EXPECT_TRUE(side.commits.in_flight().empty());
}

}  // namespace
}  // namespace ckpt::test
