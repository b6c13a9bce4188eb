// How all ranks read from one checkpoint, without a run.
#include "api/run/replica_load.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "support/temp_dir.hpp"
#include "support/thread_comm.hpp"
#include "support/training_job.hpp"

namespace ckpt::test {
namespace {

using namespace std::chrono_literals;

const JobLayout kReplicas{.dp = 2};  // both ranks hold everything

std::unique_ptr<Io> replica_io(std::size_t) {
  auto io = open_io(IoKind::automatic, 8);
  return io ? std::move(*io) : nullptr;
}

Model replicated() {
  auto model = model_of(kReplicas);
  EXPECT_TRUE(model);
  return *std::move(model);
}

/// The number of a rank's groups when ranks are given these models and options.
std::vector<std::size_t> group_counts(const std::vector<JobLayout>& layouts, const std::vector<Replicas>& replicas) {
  std::vector<std::size_t> counts(layouts.size(), 99);
  const ThreadRanks ranks(static_cast<int>(layouts.size()));
  ranks.run([&](Comm& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    const auto model = model_of(layouts[rank]);
    ASSERT_TRUE(model);
    ReplicaLoad loads(comm, {.patience = 20s, .replicas = replicas[rank]});
    const auto groups = loads.groups(*model);
    ASSERT_TRUE(groups) << groups.error().message;
    counts[rank] = groups->groups().size();
  });
  return counts;
}

TEST(ReplicaLoad, RanksWithOneModelShareWhatBothHold) {
  using Counts = std::vector<std::size_t>;
  EXPECT_EQ(group_counts({kReplicas, kReplicas}, {Replicas::exchange, Replicas::exchange}), (Counts{1, 1}));
  EXPECT_EQ(group_counts({kReplicas, kReplicas}, {Replicas::automatic, Replicas::exchange}), (Counts{1, 1}));
}

TEST(ReplicaLoad, NobodySharesWhereOneRankReadsItselfOrHasAnotherModel) {
  using Counts = std::vector<std::size_t>;
  EXPECT_EQ(group_counts({kReplicas, kReplicas}, {Replicas::exchange, Replicas::read}), (Counts{0, 0}));
  EXPECT_EQ(group_counts({kReplicas, {.dp = 2, .zero = 1}}, {Replicas::exchange, Replicas::exchange}), (Counts{0, 0}));
  EXPECT_EQ(group_counts({kReplicas}, {Replicas::exchange}), Counts{0});
}

class ReplicaLoadTest : public testing::Test {
 protected:
  void SetUp() override {
    with_runs(kReplicas, run_, {}, replica_io, [&](std::size_t rank, auto run) {
      ASSERT_TRUE(run) << run.error().message;
      const auto saved = save_step(**run, 3);
      ASSERT_TRUE(saved) << saved.error().message;
      if (rank == 0) path_ = run_ + "/step-000000003.g1";
    });
  }

  /// Loads everything on two ranks, and what `also` names on its rank; `check` gets the outcome and the bytes.
  template <class Check>
  void load(int also_rank, const std::string& also, const Check& check) {
    const ThreadRanks ranks(2);
    const Model model = replicated();
    ranks.run([&](Comm& comm) {
      const auto rank = static_cast<std::uint64_t>(comm.rank());
      const auto io = replica_io(0);
      auto pool = BufferPool::open({.buffer_bytes = std::size_t{4} << 20, .buffer_count = 2});
      ASSERT_TRUE(pool);
      const auto checkpoint = Checkpoint::open(*io, path_);
      ASSERT_TRUE(checkpoint) << checkpoint.error().message;
      std::vector<std::vector<std::byte>> memory;
      std::vector<NamedRead> reads;
      for (const auto& row : model.rows) {
        memory.emplace_back(part_of(model, row, rank, 3).size());
        reads.push_back({.name = row.tensor.name, .out = memory.back().data(), .bytes = memory.back().size()});
      }
      std::byte byte{};
      if (comm.rank() == also_rank) reads.push_back({.name = also, .out = &byte, .bytes = 1});
      ReplicaLoad loads(comm, {.patience = 20s, .replicas = Replicas::exchange});
      const auto groups = loads.groups(model);
      ASSERT_TRUE(groups) << groups.error().message;
      const auto outcome = loads.load(**checkpoint, reads, *groups, {.model = &model, .rank = rank}, *io, **pool);
      ASSERT_TRUE(outcome) << outcome.error().message;
      check(comm, *outcome, model, memory);
    });
  }

  const TempDir directory_{memory_temp_dir()};
  const std::string run_ = directory_.path() + "/run";
  std::string path_{};
};

TEST_F(ReplicaLoadTest, EachRankGetsAllBytesAndReadsAPartOfThem) {
  load(-1, "", [](Comm& comm, const ReplicaLoad::Outcome& outcome, const Model& model, const auto& memory) {
    ASSERT_TRUE(outcome.verdict) << outcome.verdict.error().message;
    for (std::size_t i = 0; i < memory.size(); ++i) {
      EXPECT_TRUE(memory[i] == part_of(model, model.rows[i], static_cast<std::uint64_t>(comm.rank()), 3))
          << model.rows[i].tensor.name;
    }
    EXPECT_GT(outcome.report.load.received_bytes, 0U);
    EXPECT_LT(outcome.report.load.received_bytes, outcome.report.load.needed_bytes);
  });
}

TEST_F(ReplicaLoadTest, WhatOneRankCannotReadIsTheVerdictOnBoth) {
  load(1, "no such tensor", [](Comm& comm, const ReplicaLoad::Outcome& outcome, const Model&, const auto&) {
    ASSERT_FALSE(outcome.verdict);
    EXPECT_EQ(exit_code(outcome.verdict.error()), exit_code(Errc::not_found));
    EXPECT_EQ(outcome.verdict.error().code, comm.rank() == 1 ? Errc::not_found : Errc::peer_failed);
    EXPECT_EQ(outcome.report.load.received_bytes, 0U);
  });
}

}  // namespace
}  // namespace ckpt::test
