// Saves in two tiers: durable in the local directory first, then drained to the run's; what a crash, a full disk or
// damage between the two leaves, and which copy a load takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "catalog/scan/entry.hpp"
#include "catalog/scan/marks.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"
#include "support/tiered_job.hpp"

namespace ckpt::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Ranks, Tiers, testing::Values(kAlone, kPair),
                         [](const auto& each) { return std::to_string(each.param.ranks()); });

TEST_P(Tiers, ASaveEndsInBothDirectoriesWithTheSameBytes) {
  on_ranks(GetParam(), options(), [](std::size_t, ckpt::Run& run) {
    const auto pending = commit_step(run, 7);
    ASSERT_TRUE(pending);
    const auto drained = run.saver().wait_drained(pending, kLong);
    ASSERT_TRUE(drained) << drained.error().message;
    EXPECT_EQ(pending->outcome()->name, "step-000000007.g1");
    EXPECT_EQ(pending->drained().outcome()->name, "step-000000007.g1");
  });
  EXPECT_EQ(names(run_), Names{"step-000000007.g1"});
  EXPECT_EQ(names(local_), Names{"step-000000007.g1"});
  const auto shared = tree(run_);
  EXPECT_GE(shared.size(), 6u);
  EXPECT_TRUE(shared == tree(local_));
  expect_loads(run_, {.dp = 3}, 7);
  expect_loads(local_, kAlone, 7);
}

TEST_P(Tiers, DurableIsToldWhileTheDrainIsStillGoingOn) {
  const auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"read"});  // only a drain reads
  std::promise<void> let_go;
  std::atomic<std::uint64_t> told{0};  // by a thread that the run's end waits for
  plan->call_at(0, [&, waits = let_go.get_future().share()] { waits.wait(); });
  on_ranks_over(
      GetParam(), options(),
      [&](std::size_t rank) { return rank == 0 ? make_fault_io(real_io(0), plan) : real_io(rank); },
      [&](std::size_t rank, ckpt::Run& run) {
        std::vector<std::shared_ptr<PendingSave>> saves;
        for (std::uint64_t step = 1; step <= 3; ++step) {
          saves.push_back(commit_step(run, step));
          ASSERT_TRUE(saves.back());
          saves.back()->drained().on_known([&](const auto& outcome) { told += outcome ? 1u : 100u; });
          const auto durable = run.saver().wait(saves.back(), kLong);
          ASSERT_TRUE(durable) << durable.error().message;
          ASSERT_TRUE(run.should_save(step));  // training goes on
        }
        EXPECT_FALSE(saves[0]->drained().known());
        const auto late = run.saver().wait_drained(saves[0], 10ms);
        ASSERT_FALSE(late);
        EXPECT_EQ(exit_code(late.error()), 11) << late.error().message;
        if (rank == 0) {
          EXPECT_EQ(told, 0u);
          EXPECT_EQ(names(run_), Names{});
          let_go.set_value();
        }
        const auto all = run.wait_all(kLong);
        ASSERT_TRUE(all) << all.error().message;
      });
  EXPECT_EQ(told, 3 * GetParam().ranks());
  EXPECT_EQ(names(run_), (Names{"step-000000001.g1", "step-000000002.g2", "step-000000003.g3"}));
}

TEST_P(Tiers, ADrainIsNoFasterThanItsLimit) {
  std::chrono::duration<double> took{0};
  ckpt::Run::Options limited = options();
  limited.drain_bytes_per_second = 2'000'000;
  on_ranks(GetParam(), limited, [&](std::size_t rank, ckpt::Run& run) {
    const auto pending = commit_step(run, 1);
    ASSERT_TRUE(pending);
    const auto drained = run.saver().wait_drained(pending, kLong);
    ASSERT_TRUE(drained) << drained.error().message;
    if (rank == 0) took = std::chrono::duration<double>(pending->times().drain_s);
  });
  std::size_t bytes = 0;
  for (const auto& [path, text] : tree(run_ + "/step-000000001.g1")) {
    if (path.ends_with(".safetensors")) bytes += text.size();
  }
  EXPECT_GT(bytes, 1'000'000u);
  EXPECT_GE(took.count(), static_cast<double>(bytes) / 2e6);
}

TEST_P(Tiers, WhenTheRunsDirectoryIsOutOfReachSavesStayDurableAndLaterOnesAreDrained) {
  std::mutex mutex;
  std::vector<std::string> told;  // by all ranks
  ckpt::Run::Options noting = options();
  noting.log = [&](const std::string& text) {
    const std::lock_guard held(mutex);
    told.push_back(text);
  };
  on_ranks(GetParam(), noting, [&](std::size_t rank, ckpt::Run& run) {
    if (rank == 0) fs::rename(run_, run_ + ".away");
    const auto first = commit_step(run, 1);
    ASSERT_TRUE(first);
    const auto durable = run.saver().wait(first, kLong);
    ASSERT_TRUE(durable) << durable.error().message;
    const auto drained = run.saver().wait_drained(first, kLong);
    ASSERT_FALSE(drained);
    // The cause, on every rank.
    EXPECT_NE(drained.error().message.find("shared/run"), std::string::npos) << drained.error().message;
    EXPECT_NE(exit_code(drained.error()), 11);
    EXPECT_EQ(load_all(run).value_or(0), 1u) << "rank " << rank;
  });
  EXPECT_EQ(std::count_if(told.begin(), told.end(),
                          [](const auto& text) { return text.find("step 1: durable in") != std::string::npos; }),
            static_cast<std::ptrdiff_t>(GetParam().ranks()));
  fs::remove_all(run_);
  fs::rename(run_ + ".away", run_);
  EXPECT_EQ(names(run_), Names{});
}

TEST_P(Tiers, AFailedDrainDoesNotHoldUpTheNextOne) {
  const auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"read"});
  plan->fail_once(0, Errc::io);
  ckpt::Run::Options keeping = options();
  keeping.local_keep = 1;
  on_ranks_over(
      GetParam(), keeping,
      [&](std::size_t rank) { return rank == 0 ? make_fault_io(real_io(0), plan) : real_io(rank); },
      [&](std::size_t, ckpt::Run& run) {
        for (std::uint64_t step = 1; step <= 4; ++step) {
          const auto pending = commit_step(run, step);
          ASSERT_TRUE(pending);
          const auto drained = run.saver().wait_drained(pending, kLong);
          EXPECT_EQ(drained.has_value(), step != 1) << (drained ? "" : drained.error().message);
        }
      });
  EXPECT_EQ(names(run_), (Names{"step-000000002.g2", "step-000000003.g3", "step-000000004.g4"}));
  // The newest stays; what was not drained goes when a newer one has been, for nobody else would ever remove it.
  EXPECT_EQ(names(local_), Names{"step-000000004.g4"});
}

TEST_P(Tiers, WhatSomebodyReadsStaysInTheLocalDirectory) {
  ckpt::Run::Options keeping = options();
  keeping.local_keep = 1;
  on_ranks(GetParam(), keeping, [&](std::size_t, ckpt::Run& run) {
    ASSERT_TRUE(save_step(run, 1));
    ASSERT_TRUE(run.wait_all(kLong));
    {
      const auto reading = run.usable();
      ASSERT_TRUE(reading) << reading.error().message;
      EXPECT_EQ((*reading)->path(), local_ + "/step-000000001.g1");
      ASSERT_TRUE(save_step(run, 2));
      ASSERT_TRUE(run.wait_all(kLong));
      EXPECT_TRUE(fs::exists(local_ + "/step-000000001.g1/manifest.json"));
      EXPECT_EQ(load_all(run).value_or(0), 2u);
    }
    ASSERT_TRUE(save_step(run, 3));
    ASSERT_TRUE(run.wait_all(kLong));
  });
  EXPECT_EQ(names(local_), Names{"step-000000003.g3"});
  EXPECT_EQ(names(run_).size(), 3u);
}

TEST_P(Tiers, WhatIsPinnedOrReferredToStaysInTheLocalDirectoryAndIsTold) {
  std::mutex mutex;
  std::map<std::string, std::set<std::string>> told;  // by all ranks
  ckpt::Run::Options keeping = options();
  keeping.local_keep = 1;
  keeping.log = [&](const std::string& text) {
    const std::lock_guard held(mutex);
    for (const std::string name : {"step-000000001.g1", "step-000000002.g2"}) {
      if (text.find(name + " stays") != std::string::npos) told[name].insert(text);
    }
  };
  const auto io = real_io(0);
  const auto mark = [&](const std::string& name, const catalog::Mark& what) {
    const auto written = catalog::write_mark(*io, catalog::marks_path(local_ + "/" + name, false), what);
    ASSERT_TRUE(written) << written.error().message;
  };
  on_ranks(GetParam(), keeping, [&](std::size_t rank, ckpt::Run& run) {
    for (std::uint64_t step = 1; step <= 3; ++step) {  // what the last one leaves is told on closing
      ASSERT_TRUE(save_step(run, step));
      ASSERT_TRUE(run.wait_all(kLong));
      if (rank == 0 && step == 1) mark("step-000000001.g1", {.kind = catalog::Mark::Kind::pin, .name = "p"});
      if (rank == 0 && step == 2)
        mark("step-000000002.g2", {.kind = catalog::Mark::Kind::reference, .name = std::string(32, 'a')});
    }
  });
  EXPECT_EQ(names(local_), (Names{"step-000000001.g1", "step-000000002.g2", "step-000000003.g3"}));
  EXPECT_EQ(names(run_).size(), 3u);
  ASSERT_EQ(told.size(), 2u);
  for (const auto& [name, texts] : told) EXPECT_EQ(texts.size(), 1u) << name;
  EXPECT_NE(told["step-000000001.g1"].begin()->find("pinned"), std::string::npos);
  EXPECT_NE(told["step-000000002.g2"].begin()->find("refers to it"), std::string::npos);
}

TEST_P(Tiers, AJobThatEndedBeforeTheDrainIsDrainedByTheNextOne) {
  save_undrained(kPair, 4);
  save_undrained(kPair, 5);
  on_ranks(GetParam(), options(), [](std::size_t, ckpt::Run& run) {
    EXPECT_EQ(load_all(run).value_or(0), 5u);
    const auto all = run.wait_all(kLong);
    ASSERT_TRUE(all) << all.error().message;
  });
  EXPECT_EQ(names(run_), Names{"step-000000005.g2"});
  EXPECT_TRUE(tree(run_ + "/step-000000005.g2") == tree(local_ + "/step-000000005.g2"));
  on_ranks(GetParam(), options(), [](std::size_t, ckpt::Run& run) {
    ASSERT_TRUE(save_step(run, 6));
    ASSERT_TRUE(run.wait_all(kLong));
  });
  EXPECT_EQ(names(run_), (Names{"step-000000005.g2", "step-000000006.g3"}));
}

TEST_P(Tiers, WhatOtherNodesHaveSavedSinceIsNotPassedByAnOldLocalCheckpoint) {
  save_undrained(kPair, 5);
  for (const std::uint64_t step : {3u, 4u}) {
    with_runs(kPair, run_, {.patience = 120s}, real_io,
              [&](std::size_t, auto run) { ASSERT_TRUE(save_step(**run, step)); });
  }
  on_ranks(GetParam(), options(), [](std::size_t, ckpt::Run& run) {
    EXPECT_EQ(load_all(run).value_or(0), 4u);
    ASSERT_TRUE(save_step(run, 6));
    ASSERT_TRUE(run.wait_all(kLong));
  });
  EXPECT_EQ(names(run_), (Names{"step-000000003.g1", "step-000000004.g2", "step-000000006.g3"}));
  EXPECT_EQ(names(local_), (Names{"step-000000005.g1", "step-000000006.g3"}));
}

TEST_P(Tiers, BytesThatChangedOnTheLocalDiskDoNotReachTheRunsDirectory) {
  save_undrained(kPair, 5);
  flip_bit(local_ + "/step-000000005.g1/shards/weights/00001-00000.safetensors");
  on_ranks(GetParam(), options(), [](std::size_t, ckpt::Run& run) {
    const auto all = run.wait_all(kLong);
    ASSERT_FALSE(all);
    EXPECT_EQ(exit_code(all.error()), 15) << all.error().message;
    EXPECT_NE(all.error().message.find("00001-00000.safetensors"), std::string::npos) << all.error().message;
    ASSERT_TRUE(save_step(run, 6));
    ASSERT_TRUE(run.wait_all(kLong));
  });
  EXPECT_EQ(names(run_), Names{"step-000000006.g2"});
}

TEST_P(Tiers, ALoadTakesTheNearestCopyThatIsWhole) {
  on_ranks(GetParam(), options(), [](std::size_t, ckpt::Run& run) {
    for (const std::uint64_t step : {1u, 2u}) ASSERT_TRUE(save_step(run, step));
  });
  const auto newest = [&](const std::string& wanted) {
    on_ranks(GetParam(), options(), [&](std::size_t, ckpt::Run& run) {
      const auto found = run.usable();
      ASSERT_TRUE(found) << found.error().message;
      EXPECT_EQ((*found)->path(), wanted);
    });
  };
  ckpt::Run::Options verifying = options();
  verifying.verify_all = true;
  const auto load = [&](std::uint64_t step, std::size_t skipped) {
    on_ranks(GetParam(), verifying, [&](std::size_t rank, ckpt::Run& run) {
      std::vector<std::byte> table(std::size_t{64} * 5000 * 4);
      const auto loaded =
          run.load(std::vector<NamedRead>{{.name = "table", .out = table.data(), .bytes = table.size()}}, false);
      ASSERT_TRUE(loaded) << loaded.error().message << loaded.error().hint;
      EXPECT_EQ(loaded->step, step);
      EXPECT_EQ(loaded->skipped.size(), skipped);
      EXPECT_EQ(table, part_of(run.model(), *run.model().find("table"), rank, step));
    });
  };
  newest(local_ + "/step-000000002.g2");
  load(2, 0);
  // A damaged copy: the same checkpoint from the run's directory.
  flip_bit(local_ + "/step-000000002.g2/shards/weights/00000-00000.safetensors");
  load(2, 1);
  // One of which a file is gone, then the manifest, then all of it.
  fs::remove(local_ + "/step-000000002.g2/shards/weights/00000-00000.safetensors");
  newest(run_ + "/step-000000002.g2");
  fs::remove(local_ + "/step-000000002.g2/manifest.json");
  load(2, 0);
  fs::remove_all(local_ + "/step-000000002.g2");
  newest(run_ + "/step-000000002.g2");
  load(2, 0);
  // Neither copy: the one before.
  flip_bit(run_ + "/step-000000002.g2/shards/weights/00000-00000.safetensors");
  load(1, 1);
  newest(run_ + "/step-000000002.g2");  // its structure is whole
}

TEST_P(Tiers, ANewLocalDiskGoesOnWithTheRunsGenerations) {
  on_ranks(GetParam(), options(), [](std::size_t, ckpt::Run& run) {
    for (const std::uint64_t step : {1u, 2u}) ASSERT_TRUE(save_step(run, step));
  });
  fs::remove_all(local_);
  on_ranks(GetParam(), options(), [](std::size_t, ckpt::Run& run) {
    ASSERT_EQ(load_all(run).value_or(0), 2u);
    ASSERT_TRUE(save_step(run, 3));
  });
  EXPECT_EQ(names(local_), Names{"step-000000003.g3"});
  EXPECT_EQ(names(run_).back(), "step-000000003.g3");
  // It goes on in the series of what it loaded, wherever that copy stood.
  EXPECT_NE(read_all(run_ + "/step-000000003.g3/manifest.json").find("\"series\":0"), std::string::npos)
      << read_all(run_ + "/step-000000003.g3/manifest.json").substr(0, 400);
}

TEST_F(Tiers, DirectoriesThatAreNoTwoTiersOfTheRunAreRefusedOnAllRanks) {
  const auto refused = [&](const JobLayout& layout, const ckpt::Run::Options& options, const std::string& reason) {
    with_runs(layout, run_, options, real_io, [&](std::size_t, auto run) {
      ASSERT_FALSE(run);
      EXPECT_EQ(exit_code(run.error()), 2) << run.error().message;
      EXPECT_NE(run.error().message.find(reason), std::string::npos) << run.error().message;
    });
  };
  ckpt::Run::Options same = options();
  same.local_directory = run_ + "/.";
  refused(kPair, same, "is that of the run");
  const std::string other = directory_.path() + "/nvme/other";
  with_runs(kPair, other, {.patience = 120s}, real_io,
            [&](std::size_t, auto run) { ASSERT_TRUE(save_step(**run, 1)); });
  ckpt::Run::Options others = options();
  others.local_directory = other;
  refused(kPair, others, "a checkpoint of run 'other', not of 'run'");
}

TEST_F(Tiers, RanksOfTwoMindsAreRefused) {
  const ThreadRanks ranks(2);
  ranks.run_tables([&](const ckpt_comm_table& table) {
    auto comm = std::make_unique<Comm>(table);
    ckpt::Run::Options mine = options();
    if (!comm->is_root()) mine.local_directory.clear();
    const auto run = ckpt::Run::open(real_io(0), std::move(comm), run_, mine);
    ASSERT_FALSE(run);
    EXPECT_EQ(exit_code(run.error()), 2) << run.error().message;
    EXPECT_NE(run.error().message.find("some ranks give a local directory"), std::string::npos);
  });
}

TEST_F(Tiers, WhenRanksAreLostTheDrainGoesOnAndOnlyRankZeroKnowsHowItEnds) {
  const auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"read"});
  std::promise<void> let_go;
  plan->call_at(0, [&, waits = let_go.get_future().share()] { waits.wait(); });
  const ThreadRanks ranks(2);
  ranks.run_tables([&](const ckpt_comm_table& table) {
    auto comm = std::make_unique<Comm>(table);
    const bool root = comm->is_root();
    auto run = ckpt::Run::open(root ? make_fault_io(real_io(0), plan) : real_io(1), std::move(comm), run_, options());
    ASSERT_TRUE(run) << run.error().message;
    (*run)->set_model(model_of(kPair).value());
    const auto pending = commit_step(**run, 1);
    ASSERT_TRUE(pending);
    ASSERT_TRUE((*run)->saver().wait(pending, kLong));
    ranks.disconnect();
    if (root) let_go.set_value();
    const auto drained = (*run)->saver().wait_drained(pending, kLong);
    EXPECT_EQ(drained.has_value(), root) << (drained ? "" : drained.error().message);
    EXPECT_TRUE((*run)->ranks_lost());
  });
  EXPECT_EQ(names(run_), Names{"step-000000001.g1"});
}

class TiersFault : public Tiers {};

TEST_F(TiersFault, AnyOperationOfADrainMayFailAndNothingIsLost) {
  save_undrained(kAlone, 3);
  const auto before = tree(local_);
  const std::string name = "step-000000003.g1";
  std::size_t failed = 0;
  for (std::uint64_t n = 0;; ++n) {
    const auto plan = std::make_shared<FaultPlan>();
    plan->fail_once(n, Errc::no_space);
    Result<> drained;
    with_runs(
        kAlone, run_, options(), [&](std::size_t) { return make_fault_io(real_io(0), plan); },
        [&](std::size_t, auto run) { drained = run ? (*run)->wait_all(kLong) : fail(run.error()); });
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
    EXPECT_TRUE(tree(local_) == before);
    const bool there = fs::exists(run_ + "/" + name);
    if (drained) {
      // Where opening cannot read it, it is left to the job after.
      EXPECT_TRUE(there || plan->first_failed().find(local_ + "/" + name + "/manifest.json") != std::string::npos);
    } else {
      ++failed;
      EXPECT_TRUE(!there || drained.error().code == Errc::not_durable) << drained.error().message;
    }
    if (there) {
      EXPECT_TRUE(tree(run_) == before);
    }
    if (HasFailure()) return;
    if (plan->first_failed().empty()) break;
    // The next job drains it, and finds nothing in the way.
    on_ranks(kAlone, options(), [](std::size_t, ckpt::Run& run) {
      const auto all = run.wait_all(kLong);
      EXPECT_TRUE(all) << all.error().message;
      EXPECT_EQ(load_all(run).value_or(0), 3u);
    });
    EXPECT_EQ(names(run_), Names{name});
    fs::remove_all(run_);
  }
  EXPECT_GT(failed, 30u);
}

TEST(TiersPowerLoss, AtAnyOperationOfASaveInTiersTheOldOrTheNewCheckpointIsLoaded) {
  const ckpt::Run::Options options{.patience = 120s, .local_directory = "/nvme/run"};
  const MemoryDisk::PowerLoss losses[] = {{}, {.name_operations = MemoryDisk::kAllNames}};
  for (std::uint64_t kind = 0; kind < 2; ++kind) {
    const MemoryDisk::PowerLoss& loss = losses[kind];
    bool over = false;
    // Every operation, each with one kind of loss.
    for (std::uint64_t n = kind; !over; n += 2) {
      MemoryDisk disk({.capacity_bytes = std::uint64_t{1} << 27});
      disk.put("/store/other", "");
      disk.put("/nvme/other", "");
      const auto plan = std::make_shared<FaultPlan>();
      bool durable = false;
      bool drained = false;
      with_runs(
          kAlone, "/store/run", options, [&](std::size_t) { return make_fault_io(disk.io(), plan); },
          [&](std::size_t, auto run) {
            ASSERT_TRUE(run) << run.error().message;
            ASSERT_TRUE(save_step(**run, 1));
            ASSERT_TRUE((*run)->wait_all(kLong));
            plan->clear();
            plan->fail_from(plan->operation_count() + n, Errc::io);
            const auto pending = commit_step(**run, 2);
            if (!pending) return;
            durable = (*run)->saver().wait(pending, kLong).has_value();
            drained = (*run)->saver().wait_drained(pending, kLong).has_value();
          });
      over = plan->first_failed().empty();
      SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
      disk.power_off(loss);
      // What the run's directory alone holds, for a job on another node.
      with_runs(
          kAlone, "/store/run", {.patience = 120s}, [&](std::size_t) { return disk.io(); },
          [&](std::size_t, auto run) {
            ASSERT_TRUE(run) << run.error().message;
            const auto step = load_all(**run);
            ASSERT_TRUE(step) << step.error().message << step.error().hint;
            EXPECT_TRUE(*step == 2 || (*step == 1 && !drained)) << *step;
          });
      with_runs(
          kAlone, "/store/run", options, [&](std::size_t) { return disk.io(); },
          [&](std::size_t, auto run) {
            ASSERT_TRUE(run) << run.error().message;
            const auto step = load_all(**run);
            ASSERT_TRUE(step) << step.error().message << step.error().hint;
            EXPECT_TRUE(*step == 2 || (*step == 1 && !durable)) << *step;
            const auto again = save_step(**run, 3);
            EXPECT_TRUE(again) << again.error().message;
            const auto all = (*run)->wait_all(kLong);
            EXPECT_TRUE(all) << all.error().message;
          });
      for (const std::string& path : disk.tree()) EXPECT_EQ(path.find(".partial-"), std::string::npos) << path;
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace ckpt::test
