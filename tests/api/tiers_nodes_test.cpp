// Saves in two tiers by several nodes: ranks whose local directories differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "support/fault_io.hpp"
#include "support/tiered_job.hpp"

namespace ckpt::test {
namespace {

const JobLayout kFour{.dp = 2, .tp = 2, .zero = 1};
const JobLayout kFourOtherwise{.dp = 4, .zero = 2};

class Nodes : public Tiers {
 protected:
  std::string disk(std::size_t rank) const { return directory_.path() + "/node" + std::to_string(rank / 2) + "/run"; }
  /// Ranks 0 and 1 are one node, 2 and 3 the other.
  void on_ranks(const JobLayout& layout, const Body& body,
                const std::function<std::unique_ptr<Io>(std::size_t)>& io = real_io) const {
    const ThreadRanks ranks(static_cast<int>(layout.ranks()));
    ranks.run_tables([&](const ckpt_comm_table& table) {
      auto comm = std::make_unique<Comm>(table);
      const auto rank = static_cast<std::size_t>(comm->rank());
      ckpt::Run::Options mine = options();
      mine.local_directory = disk(rank);
      mine.verify_all = true;
      mine.log = log_;
      auto run = ckpt::Run::open(io(rank), std::move(comm), run_, mine);
      ASSERT_TRUE(run) << run.error().message;
      (*run)->set_model(model_of(layout).value());
      body(rank, **run);
    });
  }
  std::function<void(const std::string&)> log_{};
};

TEST_F(Nodes, EachKeepsWhatItsRanksSavedAndTheRunsDirectoryGetsAll) {
  on_ranks(kFour, [](std::size_t, ckpt::Run& run) {
    for (const std::uint64_t step : {1u, 2u, 3u}) {
      const auto pending = commit_step(run, step);
      ASSERT_TRUE(pending);
      const auto durable = run.saver().wait(pending, kLong);
      ASSERT_TRUE(durable) << durable.error().message;
    }
    const auto all = run.wait_all(kLong);
    ASSERT_TRUE(all) << all.error().message;
    EXPECT_EQ(load_all(run).value_or(0), 3u);
  });
  EXPECT_EQ(names(run_), (Names{"step-000000001.g1", "step-000000002.g2", "step-000000003.g3"}));
  EXPECT_EQ(names(disk(0)), (Names{"step-000000002.g2", "step-000000003.g3"}));
  EXPECT_EQ(names(disk(2)), (Names{"step-000000002.g2", "step-000000003.g3"}));
  auto shared = tree(run_ + "/step-000000003.g3");
  // The load came from there, and says so.
  EXPECT_EQ(
      std::erase_if(shared, [](const auto& file) { return file.first.find("marks/restored") != std::string::npos; }),
      1u);
  auto parts = tree(disk(0) + "/step-000000003.g3");
  const auto second = tree(disk(2) + "/step-000000003.g3");
  EXPECT_LT(parts.size(), shared.size());
  EXPECT_LT(second.size(), shared.size());
  for (const auto& [path, bytes] : second) {
    const bool here = parts.count(path) != 0;
    EXPECT_EQ(here, path.find("0000") == std::string::npos) << path << ": only what belongs to no rank is on both";
    parts[path] = bytes;
  }
  EXPECT_TRUE(parts == shared);
  expect_loads(run_, {.dp = 3}, 3);
}

TEST_F(Nodes, ALoadIsFromTheRunsDirectoryWhichAloneHasAll) {
  on_ranks(kFour, [](std::size_t, ckpt::Run& run) {
    ASSERT_TRUE(save_step(run, 1));
    const auto step = load_all(run);  // waits for the drain
    ASSERT_TRUE(step) << step.error().message << step.error().hint;
    EXPECT_EQ(*step, 1u);
  });
  on_ranks(kFourOtherwise, [&](std::size_t, ckpt::Run& run) {
    const auto whole = run.usable();
    ASSERT_TRUE(whole) << whole.error().message;
    EXPECT_EQ((*whole)->path(), run_ + "/step-000000001.g1");
    EXPECT_EQ(load_all(run).value_or(0), 1u);
  });
  // A node that was replaced.
  fs::remove_all(disk(2));
  on_ranks(kFour, [](std::size_t, ckpt::Run& run) {
    EXPECT_EQ(load_all(run).value_or(0), 1u);
    ASSERT_TRUE(save_step(run, 2));
    ASSERT_TRUE(run.wait_all(kLong));
  });
  EXPECT_EQ(names(disk(2)), Names{"step-000000002.g2"});
  expect_loads(run_, kAlone, 2);
}

TEST_F(Nodes, WhatAJobLeftUndrainedBecomesWholeBeforeALoadOnAnotherLayout) {
  const auto leave_undrained = [&](std::uint64_t step) {
    const auto plan = std::make_shared<FaultPlan>();
    plan->count_only({"read"});
    on_ranks(
        kFour,
        [&](std::size_t rank, ckpt::Run& run) {
          if (rank == 3) plan->fail_from(plan->operation_count(), Errc::io);
          ASSERT_TRUE(save_step(run, step));
          EXPECT_FALSE(run.wait_all(kLong));
        },
        [&](std::size_t rank) { return rank == 2 ? make_fault_io(real_io(2), plan) : real_io(rank); });
  };
  leave_undrained(4);
  EXPECT_EQ(names(run_), Names{});
  on_ranks(kFourOtherwise, [](std::size_t, ckpt::Run& run) {
    const auto step = load_all(run);
    ASSERT_TRUE(step) << step.error().message << step.error().hint;
    EXPECT_EQ(*step, 4u);
  });
  EXPECT_EQ(names(run_), Names{"step-000000004.g1"});
  // With one node's part lost it is no checkpoint any more: the one before is loaded.
  leave_undrained(5);
  fs::remove_all(disk(2) + "/step-000000005.g2");
  on_ranks(kFour, [](std::size_t, ckpt::Run& run) {
    const auto step = load_all(run);
    ASSERT_TRUE(step) << step.error().message << step.error().hint;
    EXPECT_EQ(*step, 4u);
  });
  EXPECT_EQ(names(run_), Names{"step-000000004.g1"});
}

TEST_F(Nodes, ALoadDoesNotPassOverWhatCouldNotBeDrained) {
  on_ranks(kFour, [&](std::size_t rank, ckpt::Run& run) {
    ASSERT_TRUE(save_step(run, 1));
    ASSERT_TRUE(run.wait_all(kLong));
    if (rank == 0) fs::rename(run_, run_ + ".away");
    for (const std::uint64_t step : {2u, 3u}) {
      ASSERT_TRUE(save_step(run, step));
      EXPECT_FALSE(run.wait_all(kLong));
    }
    // To a trainer "there is none" would mean to begin anew.
    const auto loaded = load_all(run);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(exit_code(loaded.error()), 16) << loaded.error().message;
    if (rank == 0) fs::rename(run_ + ".away", run_);
  });
  EXPECT_EQ(names(run_), Names{"step-000000001.g1"});
  const auto full = std::make_shared<FaultPlan>();
  full->count_only({"write", "allocate"});
  full->fail_from(0, Errc::no_space);
  on_ranks(
      kFour,
      [](std::size_t, ckpt::Run& run) {
        for (int again = 0; again < 2; ++again) {
          const auto loaded = load_all(run);
          ASSERT_FALSE(loaded);
          EXPECT_EQ(exit_code(loaded.error()), 14) << loaded.error().message;
          EXPECT_NE(loaded.error().message.find("step-000000003.g3"), std::string::npos) << loaded.error().message;
        }
      },
      [&](std::size_t rank) { return rank == 0 ? make_fault_io(real_io(0), full) : real_io(rank); });
  on_ranks(kFour, [](std::size_t, ckpt::Run& run) { EXPECT_EQ(load_all(run).value_or(0), 3u); });
  EXPECT_EQ(names(run_), (Names{"step-000000001.g1", "step-000000003.g3"}));
  EXPECT_EQ(names(disk(0)), (Names{"step-000000002.g2", "step-000000003.g3"}));
}

TEST_F(Nodes, AWholeCheckpointOnOneNodeIsDrainedFromThere) {
  for (const std::size_t holder : {0u, 2u}) {
    for (const std::string& each : {run_, disk(0), disk(2)}) fs::remove_all(each);
    // By a job whose ranks all had this one local directory.
    with_runs(kPair, disk(holder), {.patience = 120s}, real_io, [&](std::size_t, auto run) {
      ASSERT_TRUE(run) << run.error().message;
      ASSERT_TRUE(save_step(**run, 6));
    });
    on_ranks(kFour, [&](std::size_t, ckpt::Run& run) {
      const auto loaded = load_all(run);
      ASSERT_TRUE(loaded) << "from node of rank " << holder << ": " << loaded.error().message;
      EXPECT_EQ(*loaded, 6u);
    });
    EXPECT_EQ(names(run_), Names{"step-000000006.g1"});
  }
}

TEST_F(Nodes, WhenRanksAreLostTheCheckpointStaysOnTheNodesForTheNextJob) {
  const ThreadRanks ranks(4);
  const auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"read"});
  std::promise<void> let_go;
  plan->call_at(0, [&, waits = let_go.get_future().share()] { waits.wait(); });
  ranks.run_tables([&](const ckpt_comm_table& table) {
    auto comm = std::make_unique<Comm>(table);
    const auto rank = static_cast<std::size_t>(comm->rank());
    ckpt::Run::Options mine = options();
    mine.local_directory = disk(rank);
    auto run =
        ckpt::Run::open(rank == 2 ? make_fault_io(real_io(2), plan) : real_io(rank), std::move(comm), run_, mine);
    ASSERT_TRUE(run) << run.error().message;
    (*run)->set_model(model_of(kFour).value());
    const auto pending = commit_step(**run, 1);
    ASSERT_TRUE(pending);
    ASSERT_TRUE((*run)->saver().wait(pending, kLong));
    if (rank == 2) {
      ranks.disconnect();
      let_go.set_value();
    }
    EXPECT_FALSE((*run)->saver().wait_drained(pending, kLong));
    EXPECT_TRUE((*run)->ranks_lost());
  });
  EXPECT_EQ(names(run_), Names{});
  on_ranks(kFour, [](std::size_t, ckpt::Run& run) { EXPECT_EQ(load_all(run).value_or(0), 1u); });
  EXPECT_EQ(names(run_), Names{"step-000000001.g1"});
}

class NodesFault : public Nodes {};

TEST_F(NodesFault, WhatNoNodeHasAnyMoreIsNotPublished) {
  std::size_t lacking = 0;
  for (std::uint64_t n = 0;; ++n) {
    SCOPED_TRACE("list " + std::to_string(n));
    for (const std::string& each : {run_, disk(0), disk(2), disk(0) + ".away", disk(2) + ".away"}) fs::remove_all(each);
    const auto plan = std::make_shared<FaultPlan>();
    plan->count_only({"list"});
    bool drained = false;
    bool lost = false;
    on_ranks(
        kFour,
        [&](std::size_t rank, ckpt::Run& run) {
          if (rank == 0) {
            plan->call_at(plan->operation_count() + n, [&] {
              for (const std::size_t leader : {0u, 2u}) fs::rename(disk(leader), disk(leader) + ".away");
            });
          }
          const auto pending = commit_step(run, 1);
          if (pending) static_cast<void>(run.saver().wait(pending, kLong));
          const auto done = pending ? run.saver().wait_drained(pending, kLong) : fail(Errc::io, "not begun");
          if (rank != 0) return;
          drained = done.has_value();
          lost = !plan->first_failed().empty();
          if (!done && exit_code(done.error()) == exit_code(Errc::incomplete)) ++lacking;
        },
        [&](std::size_t rank) { return rank == 0 ? make_fault_io(real_io(0), plan) : real_io(rank); });
    EXPECT_EQ(names(run_), drained ? Names{"step-000000001.g1"} : Names{});
    if (drained) expect_loads(run_, kAlone, 1);
    if (HasFailure()) return;
    if (!lost) break;
  }
  EXPECT_GT(lacking, 0u);
}

/// A node that could not take back its part of a failed save gives the next one a greater generation than others do.
TEST_F(NodesFault, WhatTheRunHasUnderALowerGenerationIsNotDrainedAgain) {
  on_ranks(
      kFour,
      [&](std::size_t, ckpt::Run& run) {
        ASSERT_TRUE(save_step(run, 1));
        ASSERT_TRUE(run.wait_all(kLong));
      },
      real_io);
  fs::rename(disk(2) + "/step-000000001.g1", disk(2) + "/step-000000001.g2");
  on_ranks(
      kFour,
      [&](std::size_t, ckpt::Run& run) {
        const auto step = load_all(run);
        ASSERT_TRUE(step) << step.error().message;
        EXPECT_EQ(*step, 1u);
      },
      real_io);
  EXPECT_EQ(names(run_), Names{"step-000000001.g1"});
}

TEST_F(NodesFault, ANodeThatCannotLookDoesNotPassForOneThatHasNothing) {
  const auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"list"});
  on_ranks(
      kFour,
      [&](std::size_t rank, ckpt::Run& run) {
        const auto pending = commit_step(run, 1);
        ASSERT_TRUE(pending);
        ASSERT_TRUE(run.saver().wait(pending, kLong));
        if (rank == 3) plan->fail_from(plan->operation_count(), Errc::io);  // no round ends without it
        const auto drained = run.saver().wait_drained(pending, kLong);
        ASSERT_FALSE(drained);
        EXPECT_EQ(exit_code(drained.error()), exit_code(Errc::io)) << drained.error().message;
      },
      [&](std::size_t rank) { return rank == 2 ? make_fault_io(real_io(2), plan) : real_io(rank); });
  EXPECT_EQ(names(run_), Names{});
}

TEST_F(NodesFault, AnyOperationOfOneNodesSaveAndDrainMayFailAndAllRanksAgree) {
  for (const std::size_t broken : {0u, 2u}) {
    std::size_t failed = 0;
    for (std::uint64_t n = broken;; n += 17) {
      for (const std::string& each : {run_, disk(0), disk(2)}) fs::remove_all(each);
      const auto plan = std::make_shared<FaultPlan>();
      std::string operation;
      std::array<bool, 4> durable{};
      std::array<bool, 4> drained{};
      std::array<std::uint64_t, 4> loaded{};
      on_ranks(
          kFour,
          [&](std::size_t rank, ckpt::Run& run) {
            ASSERT_TRUE(save_step(run, 1));
            ASSERT_TRUE(run.wait_all(kLong));
            if (rank == broken) plan->fail_once(plan->operation_count() + n, Errc::no_space);
            const auto pending = commit_step(run, 2);
            durable[rank] = pending && run.saver().wait(pending, kLong);
            drained[rank] = pending && run.saver().wait_drained(pending, kLong);
            if (rank == broken) {
              operation = plan->first_failed();
              plan->clear();
            }
            ASSERT_TRUE(save_step(run, 3));
            const auto all = run.wait_all(kLong);
            EXPECT_TRUE(all) << all.error().message;
            const auto step = load_all(run);
            EXPECT_TRUE(step) << step.error().message;
            loaded[rank] = step.value_or(0);
          },
          [&](std::size_t rank) { return rank == broken ? make_fault_io(real_io(broken), plan) : real_io(rank); });
      SCOPED_TRACE("rank " + std::to_string(broken) + ", operation " + std::to_string(n) + ", " + operation);
      for (std::size_t rank = 0; rank < 4; ++rank) {
        EXPECT_EQ(durable[rank], durable[0]);
        EXPECT_EQ(drained[rank], drained[0]);
        EXPECT_EQ(loaded[rank], 3u);
      }
      failed += durable[0] && drained[0] ? 0u : 1u;
      const auto there = names(run_);
      const bool second = std::any_of(there.begin(), there.end(),
                                      [](const std::string& name) { return name.starts_with("step-000000002.g"); });
      EXPECT_EQ(second, drained[0]);
      if (HasFailure()) return;
      if (operation.empty()) break;
    }
    EXPECT_GT(failed, 4u) << "rank " << broken;
  }
}

}  // namespace
}  // namespace ckpt::test
