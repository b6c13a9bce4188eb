// Drains of a job: what each rank does, and how all learn the outcome. No trainer, no saves.
#include "writers/drains.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/memory_io.hpp"
#include "support/thread_comm.hpp"
#include "writers/committer.hpp"
#include "writers/flusher.hpp"
#include "writers/save_record.hpp"

namespace ckpt::test {
namespace {

using namespace std::chrono_literals;

constexpr const char* kLocal = "/nvme/run";
constexpr const char* kShared = "/shared/run";

std::shared_ptr<SaveJob> job(std::uint64_t step) {
  auto save = std::make_shared<SaveJob>(Hash128{.bytes = {static_cast<std::uint8_t>(step)}});
  save->step = step;
  save->tiered = true;
  return save;
}

/// A save that is durable in the local directory.
std::shared_ptr<SaveJob> durable(std::uint64_t step, const std::string& name) {
  auto save = job(step);
  save->resolve(SaveOutcome{.name = name, .id = save->id().hex()});
  return save;
}

/// A rank's drains, and what its user hears of them.
struct Side {
  Side(Comm& comm, const std::string& local, Nodes nodes)
      : drains(comm,
               {.directories = {.local_directory = local, .run_directory = kShared}, .patience = 20s, .nodes = nodes},
               reports) {}

  void wait_for_own_part() const {
    while (!drains.drained()) std::this_thread::yield();
  }

  std::vector<std::string> log{};
  SaveReports reports{[this](const std::string& text) { log.push_back(text); }, {}};
  Drains drains;
};

class DrainsTest : public testing::Test {
 protected:
  void SetUp() override {
    disk.put(std::string(kLocal) + "/.keep", "");
    disk.put("/nvme1/run/.keep", "");
    disk.put(std::string(kShared) + "/.keep", "");
  }
  /// Commits a checkpoint without data to the local directory.
  std::string commit(std::uint64_t step) const {
    auto pool = BufferPool::open({.buffer_bytes = std::size_t{4} << 20, .buffer_count = 1});
    if (!pool) return {};
    const auto save = job(step);
    save->manifest.id = save->id();
    save->manifest.created = "2026-01-02T03:04:05.000000000Z";
    save->manifest.generator = "test";
    save->manifest.meta.step = step;
    save->manifest.meta.world_size = 1;
    save->manifest.layouts = {{.kind = universal::Layout::Kind::irregular}};
    Flusher flusher(disk.io(), **pool, Flusher::Options{});
    Committer committer(disk.io(), flusher, {.home = kLocal, .least_generation = [] { return std::uint64_t{0}; }});
    const auto begun = committer.begin(*save);
    EXPECT_TRUE(begun) << begun.error().message;
    committer.publish(save, {to_text(RankRecord{})});
    committer.wait();
    const auto name = save->publishing();
    EXPECT_TRUE(name) << name.error().message;
    return name.value_or("");
  }
  bool is_drained(const std::string& name) const {
    return disk.text(std::string(kShared) + "/" + name + "/manifest.json") != "(none)";
  }

  MemoryDisk disk{};
};

TEST_F(DrainsTest, RankZeroDrainsAndAllRanksLearnTheName) {
  const std::string name = commit(5);
  const ThreadRanks ranks(2);
  ranks.run([&](Comm& comm) {
    Side side(comm, kLocal, {});
    if (comm.is_root()) {
      const auto opened = side.drains.open(*disk.io());
      ASSERT_TRUE(opened) << opened.error().message;
    }
    const auto save = durable(5, name);
    side.drains.add(save);
    EXPECT_EQ(side.drains.draining().size(), 1U);
    if (!comm.is_root()) {
      EXPECT_TRUE(side.drains.drained());  // it has nothing to do
    }
    side.wait_for_own_part();
    EXPECT_FALSE(save->drained().known());  // before the others know
    ASSERT_TRUE(side.drains.conclude());
    ASSERT_TRUE(save->drained().known());
    const auto outcome = save->drained().outcome();
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_EQ(outcome->name, name);
    EXPECT_EQ(side.drains.ended_count(), 1U);
    EXPECT_TRUE(side.drains.draining().empty());
    EXPECT_TRUE(side.log.empty());
  });
  EXPECT_TRUE(is_drained(name));
}

TEST_F(DrainsTest, AFailureIsTheOutcomeOnAllRanksAndEachReportsIt) {
  const ThreadRanks ranks(2);
  ranks.run([&](Comm& comm) {
    Side side(comm, kLocal, {});
    if (comm.is_root()) {
      ASSERT_TRUE(side.drains.open(*disk.io()));
    }
    const auto save = durable(7, "step-000000007.g3");  // the local directory does not have it
    side.drains.add(save);
    side.wait_for_own_part();
    ASSERT_TRUE(side.drains.conclude());
    ASSERT_TRUE(save->drained().known());
    EXPECT_FALSE(save->drained().outcome());
    EXPECT_TRUE(side.drains.draining().empty());
    ASSERT_EQ(side.log.size(), 1U);
    EXPECT_EQ(side.log[0].find("step 7: durable in /nvme/run, but not in /shared/run: "), 0U) << side.log[0];
  });
}

TEST_F(DrainsTest, LeadersOfSeveralNodesDrainInSteps) {
  const std::string name = commit(5);  // on the node of rank 0
  const ThreadRanks ranks(2);
  ranks.run([&](Comm& comm) {
    const std::string local = comm.is_root() ? kLocal : "/nvme1/run";
    Side side(comm, local, {.leader = comm.rank(), .several = true});
    ASSERT_TRUE(side.drains.open(*disk.io()));
    const auto save = durable(5, name);
    side.drains.add(save);
    int steps = 0;
    for (; !save->drained().known(); ++steps) {
      ASSERT_LT(steps, 4);
      side.wait_for_own_part();
      ASSERT_TRUE(side.drains.conclude());
    }
    EXPECT_EQ(steps, 3);
    const auto outcome = save->drained().outcome();
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_EQ(outcome->name, name);
  });
  EXPECT_TRUE(is_drained(name));
}

TEST_F(DrainsTest, OneRankNeedsNobodysAgreement) {
  const std::string name = commit(5);
  const auto comm = Comm::solo();
  Side side(*comm, kLocal, {});
  ASSERT_TRUE(side.drains.open(*disk.io()));
  const auto save = durable(5, name);
  side.drains.start(save, name);
  side.drains.add(save);
  ASSERT_TRUE(save->drained().wait_for(20s));
  EXPECT_TRUE(save->drained().outcome());
  side.drains.poll();
  EXPECT_TRUE(side.drains.draining().empty());
  EXPECT_TRUE(is_drained(name));
}

TEST_F(DrainsTest, WhatAnEarlierJobLeftIsDrainedOnResuming) {
  const std::string name = commit(5);
  const ThreadRanks ranks(2);
  ranks.run([&](Comm& comm) {
    Side side(comm, kLocal, {});
    if (comm.is_root()) {
      ASSERT_TRUE(side.drains.open(*disk.io()));
    }
    const auto resumed = side.drains.resume();
    ASSERT_TRUE(resumed) << resumed.error().message;
    ASSERT_EQ(side.drains.draining().size(), 1U);
    EXPECT_EQ(side.drains.draining().front()->step, 5U);
    ASSERT_EQ(side.log.size(), 1U);
    EXPECT_EQ(side.log[0], name + ": left undrained by an earlier job; draining now");
    side.wait_for_own_part();
    ASSERT_TRUE(side.drains.conclude());
    EXPECT_TRUE(side.drains.draining().empty());
  });
  EXPECT_TRUE(is_drained(name));
}

TEST_F(DrainsTest, OneDirectoryForBothIsRefused) {
  const auto comm = Comm::solo();
  Side side(*comm, kShared, {});
  const auto opened = side.drains.open(*disk.io());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Errc::usage);
}

TEST_F(DrainsTest, ClosingEndsDrainsThatNotAllRanksConfirmed) {
  const std::string name = commit(5);
  const ThreadRanks ranks(2);
  ranks.run([&](Comm& comm) {
    Side side(comm, kLocal, {});
    if (comm.is_root()) {
      ASSERT_TRUE(side.drains.open(*disk.io()));
    }
    const auto save = durable(5, name);
    side.drains.add(save);
    side.drains.close();
    ASSERT_TRUE(save->drained().known());
    EXPECT_TRUE(side.drains.draining().empty());
    if (comm.is_root()) return;  // it owns its drain, which may have ended before
    ASSERT_FALSE(save->drained().outcome());
    EXPECT_EQ(save->drained().outcome().error().code, Errc::interrupted);
  });
}

TEST_F(DrainsTest, WithoutTheOtherRanksOnlyRankZeroGoesOn) {
  const std::string name = commit(5);
  const ThreadRanks ranks(2);
  ranks.run([&](Comm& comm) {
    Side side(comm, kLocal, {});
    if (comm.is_root()) {
      ASSERT_TRUE(side.drains.open(*disk.io()));
    }
    const auto save = durable(5, name);
    side.drains.add(save);
    side.drains.lose({.code = Errc::peer_failed, .message = "lost"});
    ASSERT_TRUE(save->drained().wait_for(20s));
    const auto outcome = save->drained().outcome();
    ASSERT_EQ(outcome.has_value(), comm.is_root());
    if (!outcome) {
      EXPECT_EQ(outcome.error().code, Errc::peer_failed);
    }
  });
  EXPECT_TRUE(is_drained(name));
}

}  // namespace
}  // namespace ckpt::test
