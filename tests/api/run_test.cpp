// What a run promises a job beside the bytes: which checkpoint is resumed from, and one outcome for all ranks.
#include "api/run/run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "catalog/scan/marks.hpp"
#include "engine/store/inbox.hpp"
#include "format/hash.hpp"
#include "support/fault_io.hpp"
#include "support/file_bytes.hpp"
#include "support/temp_dir.hpp"
#include "support/training_job.hpp"

namespace ckpt::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::unique_ptr<Io> real_io(std::size_t) {
  auto io = open_io(IoKind::automatic, 8);
  return io ? std::move(*io) : nullptr;
}

/// A clock that stands unless it is set.
class SetClock {
 public:
  void advance(std::chrono::milliseconds time) { *since_ += time.count(); }
  std::function<std::chrono::steady_clock::time_point()> reader() const {
    return [since = since_] { return std::chrono::steady_clock::time_point(std::chrono::milliseconds(*since)); };
  }

 private:
  std::shared_ptr<std::atomic<std::int64_t>> since_ = std::make_shared<std::atomic<std::int64_t>>(0);
};

class RunTest : public testing::Test {
 protected:
  using Body = std::function<void(std::size_t rank, ckpt::Run& run)>;
  void on_ranks(const JobLayout& layout, const ckpt::Run::Options& options, const Body& body) const {
    with_runs(layout, run_, options, real_io, [&](std::size_t rank, auto run) {
      ASSERT_TRUE(run) << run.error().message;
      body(rank, **run);
    });
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(run_)) out.push_back(entry.path().filename());
    std::sort(out.begin(), out.end());
    return out;
  }

  const TempDir directory_{memory_temp_dir()};
  const std::string run_ = directory_.path() + "/run";
};

const JobLayout kAlone{};
const JobLayout kPair{.dp = 2, .zero = 1};

TEST_F(RunTest, AnEmptyRunHasNothingToResumeFrom) {
  on_ranks(kPair, {}, [](std::size_t, ckpt::Run& run) {
    const auto step = load_all(run);
    ASSERT_FALSE(step);
    EXPECT_EQ(exit_code(step.error()), 10) << step.error().message;
  });
}

TEST_F(RunTest, ACheckpointIsNoPlaceForARun) {
  const std::string checkpoint = run_ + "/step-000000001.g1";
  fs::create_directories(checkpoint + "/shards");
  for (const char* below : {"", "/shards", "/shards/new/run"}) {
    with_runs(kPair, checkpoint + below, {}, real_io, [&](std::size_t, auto run) {
      ASSERT_FALSE(run) << below;
      EXPECT_EQ(run.error().code, Errc::usage) << run.error().message;
    });
  }
  EXPECT_TRUE(fs::is_empty(checkpoint + "/shards"));
}

TEST_F(RunTest, TheSameStepTwiceGivesTwoCheckpointsOfWhichTheLaterCounts) {
  on_ranks(kPair, {}, [](std::size_t, ckpt::Run& run) {
    ASSERT_TRUE(save_step(run, 5));
    ASSERT_TRUE(save_step(run, 5));
    EXPECT_EQ(load_all(run).value(), 5u);
  });
  EXPECT_EQ(names(), (std::vector<std::string>{"step-000000005.g1", "step-000000005.g2"}));
}

TEST_F(RunTest, TheLastLoadIsRememberedAndASaveAndALoadTellTheCatalog) {
  fs::create_directories(directory_.path() + "/.ckpt");
  const auto io = real_io(0);
  on_ranks(kPair, {}, [](std::size_t, ckpt::Run& run) { ASSERT_TRUE(save_step(run, 5)); });
  auto notes = read_inbox(*io, directory_.path());
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].run + "/" + notes[0].name, "run/step-000000005.g1");
  const auto restored = [&] {
    std::vector<catalog::Mark> marks = catalog::read_marks(*io, run_ + "/step-000000005.g1/marks").marks;
    std::erase_if(marks, [](const auto& mark) { return mark.kind != catalog::Mark::Kind::restored; });
    return marks;
  };
  EXPECT_TRUE(restored().empty());
  on_ranks(kPair, {}, [](std::size_t, ckpt::Run& run) { EXPECT_EQ(load_all(run).value(), 5u); });
  const auto first = restored();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(read_inbox(*io, directory_.path()).size(), 2u);
  on_ranks(kPair, {}, [](std::size_t, ckpt::Run& run) { EXPECT_EQ(load_all(run).value(), 5u); });
  ASSERT_EQ(restored().size(), 1u);
  EXPECT_GE(restored()[0].at, first[0].at);
}

TEST_F(RunTest, NeitherAnInboxNorMarksThatCannotBeWrittenFailASaveOrALoad) {
  fs::create_directories(directory_.path() + "/.ckpt");
  std::ofstream(directory_.path() + "/.ckpt/inbox") << "a file in its place";
  on_ranks(kAlone, {}, [](std::size_t, ckpt::Run& run) { ASSERT_TRUE(save_step(run, 5)); });
  fs::remove_all(run_ + "/step-000000005.g1/marks");
  std::ofstream(run_ + "/step-000000005.g1/marks") << "a file in its place";
  on_ranks(kAlone, {}, [](std::size_t, ckpt::Run& run) { EXPECT_EQ(load_all(run).value(), 5u); });
}

TEST_F(RunTest, ADamagedNewestCheckpointFallsBackToTheOneBeforeOnAllRanks) {
  on_ranks(kPair, {}, [](std::size_t, ckpt::Run& run) {
    ASSERT_TRUE(save_step(run, 1));
    ASSERT_TRUE(save_step(run, 2));
  });
  const std::string shard = run_ + "/step-000000002.g2/shards/weights/00001-00000.safetensors";
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('!');
  }
  std::atomic<int> told{0};
  const ckpt::Run::Options options{.verify_all = true, .log = [&](const std::string& text) {
                                     if (text.find("step-000000002.g2") != std::string::npos) ++told;
                                   }};
  on_ranks(kPair, options, [](std::size_t, ckpt::Run& run) {
    const auto step = load_all(run);
    ASSERT_TRUE(step) << step.error().message;
    EXPECT_EQ(*step, 1u);
  });
  EXPECT_EQ(told, 2) << "every rank says which checkpoint is damaged";
}

TEST_F(RunTest, ACheckpointOfALaterReleaseStopsAllRanksInsteadOfResumingFromAnOlderOne) {
  on_ranks(kPair, {}, [](std::size_t, ckpt::Run& run) {
    ASSERT_TRUE(save_step(run, 1));
    ASSERT_TRUE(save_step(run, 2));
  });
  const std::string manifest = run_ + "/step-000000002.g2/manifest.json";
  std::string text = read_file(manifest);
  const std::string now = "\"version\":\"1.0\"";
  ASSERT_NE(text.find(now), std::string::npos) << text;
  text.replace(text.find(now), now.size(), "\"version\":\"7.0\"");
  const std::size_t own_hash = text.size() - 35;  // 32 digits, then "} and a newline: over all bytes before it
  text.replace(own_hash, 32, hash128(std::string_view(text).substr(0, own_hash)).hex());
  write_file(manifest, text);
  on_ranks(kPair, {}, [](std::size_t, ckpt::Run& run) {
    const auto step = load_all(run);
    ASSERT_FALSE(step);
    EXPECT_EQ(exit_code(step.error()), 12) << step.error().message;
    EXPECT_NE(step.error().message.find("7.0"), std::string::npos) << step.error().message;
  });
}

TEST_F(RunTest, RanksThatDisagreeOnTheStepAreToldSoAndTheNextSaveWorks) {
  on_ranks(kPair, {}, [](std::size_t rank, ckpt::Run& run) {
    const auto begun = run.begin(7 + rank);
    ASSERT_FALSE(begun);
    EXPECT_EQ(exit_code(begun.error()), 2) << begun.error().message;
    const auto saved = save_step(run, 9);
    EXPECT_TRUE(saved) << saved.error().message;
  });
  EXPECT_EQ(names(), (std::vector<std::string>{"step-000000009.g1"}));
}

TEST_F(RunTest, RanksWhoseModelsDifferAreToldSo) {
  on_ranks(kPair, {}, [](std::size_t rank, ckpt::Run& run) {
    if (rank == 1) run.set_model(*model_of({.dp = 2, .zero = 3}));
    std::vector<std::vector<std::byte>> memory;
    ASSERT_TRUE(run.begin(1));
    ASSERT_TRUE(add_all(run, 1, memory));
    const auto pending = run.commit({});
    ASSERT_FALSE(pending);
    EXPECT_EQ(exit_code(pending.error()), 2) << pending.error().message;
  });
  EXPECT_EQ(names(), std::vector<std::string>{});
}

TEST_F(RunTest, APartThatIsMissingOnOneRankFailsTheSaveOfAllAndNamesIt) {
  on_ranks(kPair, {.staging_bytes = 1}, [](std::size_t rank, ckpt::Run& run) {
    std::vector<std::vector<std::byte>> memory;
    ASSERT_TRUE(run.begin(1));
    if (rank == 0) {
      ASSERT_TRUE(add_all(run, 1, memory));
    }
    const auto done = run.commit({});
    ASSERT_FALSE(done);
    EXPECT_EQ(exit_code(done.error()), 2) << done.error().message;
    EXPECT_NE(done.error().message.find("but none was added"), std::string::npos) << done.error().message;
  });
  EXPECT_EQ(names(), std::vector<std::string>{});
}

TEST_F(RunTest, ARankThatIsGoneFailsTheOthersWithinTheirPatienceAndLosesNothing) {
  on_ranks(kPair, {}, [](std::size_t, ckpt::Run& run) { ASSERT_TRUE(save_step(run, 1)); });
  const ThreadRanks ranks(3);
  std::latch given_up(2);
  ranks.run_tables([&](const ckpt_comm_table& table) {
    auto comm = std::make_unique<Comm>(table);
    const int rank = comm->rank();
    auto run = ckpt::Run::open(real_io(0), std::move(comm), run_, {.patience = 5s});
    if (!run && rank != 1) given_up.count_down();
    ASSERT_TRUE(run) << run.error().message;
    (*run)->set_model(*model_of({.dp = 3, .zero = 1}));
    if (rank == 1) {
      given_up.wait();  // takes part in nothing from here on
      return;
    }
    struct Leaving {
      std::latch& told;
      ~Leaving() { told.count_down(); }
    };
    const Leaving leaving{given_up};
    const auto start = std::chrono::steady_clock::now();
    const auto done = save_step(**run, 2);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Errc::peer_failed) << done.error().message;
    const auto again = (*run)->should_save(3);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code, Errc::peer_failed);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 120s);
  });
  on_ranks(kPair, {}, [](std::size_t, ckpt::Run& run) { EXPECT_EQ(load_all(run).value(), 1u); });
  EXPECT_EQ(names(), (std::vector<std::string>{"step-000000001.g1"}));
}

TEST_F(RunTest, TwoJobsThatSaveIntoOneRunBothSucceed) {
  std::vector<std::jthread> jobs;
  for (int job = 0; job < 2; ++job) {
    jobs.emplace_back([this] {
      on_ranks(kPair, {}, [](std::size_t, ckpt::Run& run) {
        for (const std::uint64_t step : {1u, 2u, 3u}) {
          const auto saved = save_step(run, step);
          EXPECT_TRUE(saved) << saved.error().message;
        }
      });
    });
  }
  jobs.clear();
  EXPECT_EQ(names().size(), 6u);
  on_ranks(kPair, {}, [](std::size_t, ckpt::Run& run) { EXPECT_EQ(load_all(run).value(), 3u); });
}

TEST_F(RunTest, SeveralSavesInFlightAreCommittedInTheirOrder) {
  on_ranks(kPair, {.staging_bytes = 128u << 20}, [](std::size_t, ckpt::Run& run) {
    std::vector<std::shared_ptr<PendingSave>> saves;
    for (std::uint64_t step = 1; step <= 4; ++step) {
      std::vector<std::vector<std::byte>> memory;
      ASSERT_TRUE(run.begin(step));
      ASSERT_TRUE(add_all(run, step, memory));
      auto pending = run.commit({});
      ASSERT_TRUE(pending) << pending.error().message;
      saves.push_back(*pending);
      ASSERT_TRUE(run.should_save(step));
    }
    const auto done = run.wait_all(120s);
    ASSERT_TRUE(done) << done.error().message;
    for (std::uint64_t step = 1; step <= 4; ++step) {
      const std::string wanted = "step-00000000" + std::to_string(step) + ".g" + std::to_string(step);
      EXPECT_EQ(saves[step - 1]->outcome()->name, wanted);
    }
  });
}

TEST_F(RunTest, SavesWithoutAnyOtherCallPublishTheOnesBefore) {
  on_ranks(kPair, {.staging_bytes = 128u << 20}, [](std::size_t, ckpt::Run& run) {
    std::shared_ptr<PendingSave> first;
    for (std::uint64_t step = 1; step <= 3000 && !(first && first->durable().known()); ++step) {
      std::vector<std::vector<std::byte>> memory;
      ASSERT_TRUE(run.begin(step));
      ASSERT_TRUE(add_all(run, step, memory));
      auto pending = run.commit({});
      ASSERT_TRUE(pending) << pending.error().message;
      if (!first) first = *pending;
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(first->durable().known());  // on all ranks at the same save
  });
}

TEST_F(RunTest, AStopThatOneRankSawReachesAllAtTheSameStep) {
  const JobLayout three{.dp = 3, .zero = 1};
  std::vector<std::uint64_t> stopped(three.ranks(), 0);
  const ThreadRanks ranks(3);
  ranks.run_tables([&](const ckpt_comm_table& table) {
    auto comm = std::make_unique<Comm>(table);
    const auto rank = static_cast<std::size_t>(comm->rank());
    SetClock clock;
    ckpt::Run::Options options{.clock = clock.reader()};
    if (rank == 2) options.time_limit = 1h;  // the others have no limit
    auto run = ckpt::Run::open(real_io(0), std::move(comm), run_, options);
    ASSERT_TRUE(run) << run.error().message;
    for (std::uint64_t step = 1; step <= 10 && stopped[rank] == 0; ++step) {
      if (step == 5) clock.advance(1h);
      const auto save = (*run)->should_save(step);
      ASSERT_TRUE(save) << save.error().message;
      EXPECT_EQ(*save, (*run)->stop_requested());
      if ((*run)->stop_requested()) stopped[rank] = step;
    }
  });
  EXPECT_EQ(stopped, (std::vector<std::uint64_t>{6, 6, 6}));
}

TEST_F(RunTest, StepsAskAtTheirMultiplesAndNotAtStepZero) {
  on_ranks(kPair, {.every_steps = 2}, [](std::size_t, ckpt::Run& run) {
    for (const std::uint64_t step : {0u, 1u, 2u, 3u, 4u})
      EXPECT_EQ(run.should_save(step).value(), step % 2 == 0 && step != 0);
  });
}

/// Steps of `step_time` each; every save takes 2 s. The steps at which each rank was told to save.
std::vector<std::vector<std::uint64_t>> told_to_save(const JobLayout& layout, const std::string& directory,
                                                     ckpt::Run::Options options, std::chrono::seconds step_time,
                                                     std::uint64_t steps) {
  std::vector<SetClock> clocks(layout.ranks());
  std::vector<std::vector<std::uint64_t>> told(layout.ranks());
  const ThreadRanks ranks(static_cast<int>(layout.ranks()));
  ranks.run_tables([&](const ckpt_comm_table& table) {
    auto comm = std::make_unique<Comm>(table);
    const auto rank = static_cast<std::size_t>(comm->rank());
    ckpt::Run::Options mine = options;
    mine.clock = clocks[rank].reader();
    auto run = ckpt::Run::open(real_io(rank), std::move(comm), directory, mine);
    ASSERT_TRUE(run) << run.error().message;
    (*run)->set_model(*model_of(layout));
    for (std::uint64_t step = 0; step <= steps; ++step) {
      if (step != 0) clocks[rank].advance(step_time * (rank == 0 ? 1 : 7));  // only rank 0's clock counts
      const auto save = (*run)->should_save(step);
      ASSERT_TRUE(save) << save.error().message;
      if (!*save) continue;
      told[rank].push_back(step);
      std::vector<std::vector<std::byte>> memory;
      ASSERT_TRUE((*run)->begin(step));
      clocks[rank].advance(2s);
      ASSERT_TRUE(add_all(**run, step, memory));
      const auto pending = (*run)->commit({});
      ASSERT_TRUE(pending) << pending.error().message;
    }
  });
  return told;
}

TEST_F(RunTest, TheBestIntervalFollowsWhatSavesCostAndAllRanksSaveTogether) {
  using ReportedFlag = std::vector<std::uint64_t>;
  const ckpt::Run::Options options{.optimal = true, .mtbf_s = 40'000};  // best: 399 s, the first save measures
  EXPECT_EQ(told_to_save(kAlone, run_, options, 100s, 12), (std::vector<ReportedFlag>{{1, 5, 9}}));
  const auto pair = told_to_save(kPair, run_ + "2", options, 100s, 14);
  EXPECT_EQ(pair, (std::vector<ReportedFlag>{{2, 7, 12}, {2, 7, 12}}));  // what rank 0 decides acts one call later
}

TEST_F(RunTest, ACapHoldsBackWhatStepsAskFor) {
  using ReportedFlag = std::vector<std::uint64_t>;
  const ckpt::Run::Options options{.every_steps = 1, .most_overhead = 0.05};  // 2 s are 5 % of 40 s
  EXPECT_EQ(told_to_save(kAlone, run_, options, 10s, 10), (std::vector<ReportedFlag>{{1, 5, 9}}));
  const auto pair = told_to_save(kPair, run_ + "2", options, 10s, 12);
  EXPECT_EQ(pair, (std::vector<ReportedFlag>{{2, 7, 12}, {2, 7, 12}}));
}

TEST_F(RunTest, TheStoresOwnRulesSayWhenToSave) {
  using ReportedFlag = std::vector<std::uint64_t>;
  const auto write = [&](const std::string& text) { std::ofstream(directory_.path() + "/ckpt.toml") << text; };
  // The option that the rules stand in for asks at every step.
  ckpt::Run::Options options{.every_steps = 1, .policy_store = directory_.path()};
  write("[interval]\nevery_steps = 4\n");
  EXPECT_EQ(told_to_save(kAlone, run_, options, 10s, 9), (std::vector<ReportedFlag>{{4, 8}}));
  EXPECT_EQ(told_to_save(kPair, run_ + "2", options, 10s, 9), (std::vector<ReportedFlag>{{5, 9}, {5, 9}}));
  write("[interval]\nat_start = true\nbefore_end = '1h'\n");
  options.time_limit = 3h;
  EXPECT_EQ(told_to_save(kAlone, run_ + "3", options, 10min, 13), (std::vector<ReportedFlag>{{0, 11}}));
  const std::string name = run_.substr(run_.rfind('/') + 1);
  write("[interval]\nevery_steps = 4\n[[rule]]\nruns = '" + name + "5'\ninterval = { every_steps = 3 }\n");
  options.time_limit = {};
  EXPECT_EQ(told_to_save(kAlone, run_ + "5", options, 10s, 7), (std::vector<ReportedFlag>{{3, 6}}));
  EXPECT_EQ(told_to_save(kAlone, run_ + "6", options, 10s, 9), (std::vector<ReportedFlag>{{4, 8}}));
  write("[[rule]]\nruns = '*'\nkeep = { last = 1 }\n");
  const auto refused = ckpt::Run::open(real_io(0), Comm::solo(), run_ + "4", options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::usage) << refused.error().message;
}

TEST_F(RunTest, ASaveThatIsDueByTheClockIsAskedForOnce) {
  SetClock clock;
  std::vector<std::uint64_t> asked;
  on_ranks(kPair, {.every = 300ms, .clock = clock.reader()}, [&](std::size_t rank, ckpt::Run& run) {
    if (rank == 0) clock.advance(400ms);
    for (std::uint64_t step = 1; step <= 6; ++step) {
      const auto save = run.should_save(step);
      ASSERT_TRUE(save) << save.error().message;
      if (!*save) continue;
      if (rank == 0) asked.push_back(step);
      const auto saved = save_step(run, step);
      ASSERT_TRUE(saved) << saved.error().message;
    }
  });
  EXPECT_EQ(asked, std::vector<std::uint64_t>{2});
}

TEST_F(RunTest, ATimeLimitLeavesTimeForWhatTheLastSaveTook) {
  SetClock clock;
  const auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"fdatasync"});
  const ckpt::Run::Options options{.staging_bytes = 64u << 20, .time_limit = 10h, .clock = clock.reader()};
  with_runs(
      kAlone, run_, options, [&](std::size_t) { return make_fault_io(real_io(0), plan); },
      [&](std::size_t, auto run) {
        ASSERT_TRUE(run) << run.error().message;
        clock.advance(10h - 11s);
        ASSERT_FALSE((*run)->should_save(1).value());
        // Much of the time goes into writing, long after commit has returned: two more such saves would not fit.
        plan->call_at(plan->operation_count(), [] { std::this_thread::sleep_for(6s); });
        const auto saved = save_step(**run, 1);
        ASSERT_TRUE(saved) << saved.error().message;
        EXPECT_TRUE((*run)->should_save(2).value());
        EXPECT_TRUE((*run)->stop_requested());
      });
}

TEST_F(RunTest, ALoadOfUnequalSharesMayTakeLongerThanThePatience) {
  const JobLayout replicas{.dp = 3};
  on_ranks(replicas, {}, [](std::size_t, ckpt::Run& run) { ASSERT_TRUE(save_step(run, 1)); });
  const auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"read"});
  const auto load = [&] {
    with_runs(
        replicas, run_, {.patience = 4s},
        [&](std::size_t rank) { return rank == 0 ? make_fault_io(real_io(0), plan) : real_io(rank); },
        [&](std::size_t rank, auto run) {
          ASSERT_TRUE(run) << run.error().message;
          const auto step = load_all(**run);
          ASSERT_TRUE(step) << "rank " << rank << ": " << step.error().message;
          EXPECT_EQ(*step, 1u);
        });
  };
  load();
  // The last read of rank 0 is one of tensors.
  plan->call_at(2 * plan->operation_count() - 1, [] { std::this_thread::sleep_for(9s); });
  load();
  EXPECT_NE(plan->first_failed(), "") << "nothing was slow";
}

TEST_F(RunTest, ARankThatWaitsForItsDiskInCommitMayTakeLongerThanThePatience) {
  const auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"write"});
  plan->call_at(0, [] { std::this_thread::sleep_for(9s); });
  const std::vector<std::byte> large(100u << 20, std::byte{5});  // more than the least staging memory
  with_runs(
      kPair, run_, {.staging_bytes = 1, .patience = 4s},
      [&](std::size_t rank) { return rank == 0 ? make_fault_io(real_io(0), plan) : real_io(rank); },
      [&](std::size_t rank, auto run) {
        ASSERT_TRUE(run) << run.error().message;
        std::vector<std::vector<std::byte>> memory;
        ASSERT_TRUE((*run)->begin(1));
        ASSERT_TRUE(add_all(**run, 1, memory));
        if (rank == 0) {
          const Tensor tensor{.name = "large", .dtype = Dtype::u8, .shape = {large.size()}};
          ASSERT_TRUE((*run)->saver().add({.described = tensor,
                                           .chunk = {.box = Box::whole(tensor.shape)},
                                           .memory = {.data = large.data(), .bytes = large.size()}}));
        }
        const auto pending = (*run)->commit({});
        ASSERT_TRUE(pending) << pending.error().message;
        const auto done = (*run)->wait_all(120s);
        EXPECT_TRUE(done) << done.error().message;
      });
  EXPECT_NE(plan->first_failed(), "") << "nothing was slow";
}

TEST_F(RunTest, APartialLoadLeavesWhatIsMissingAsItWasOnEveryRank) {
  const JobLayout replicas{.dp = 2};
  const auto model = [](const std::vector<std::string>& names) {
    using universal::Layout;
    std::vector<universal::TensorRow> rows;
    for (const std::string& name : names) rows.push_back({.tensor = {.name = name, .dtype = Dtype::f32, .shape = {4}}});
    return Model::make({{.kind = Layout::Kind::mesh, .mesh = {{{"dp", 2}}}}}, std::move(rows)).value();
  };
  on_ranks(replicas, {}, [&](std::size_t, ckpt::Run& run) {
    run.set_model(model({"old"}));
    ASSERT_TRUE(save_step(run, 1));
  });
  on_ranks(replicas, {}, [&](std::size_t rank, ckpt::Run& run) {
    run.set_model(model({"old", "new"}));
    const auto mark = static_cast<std::byte>(rank + 1);
    std::vector<std::byte> old(16, mark);
    std::vector<std::byte> fresh(16, mark);
    const std::vector<NamedRead> reads = {{.name = "new", .out = fresh.data(), .bytes = 16},
                                          {.name = "old", .out = old.data(), .bytes = 16}};
    const auto loaded = run.load(reads, true);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(loaded->report.missing, std::vector<std::string>{"new"});
    EXPECT_EQ(fresh, std::vector<std::byte>(16, mark));
    EXPECT_NE(old, std::vector<std::byte>(16, mark));
  });
}

TEST_F(RunTest, PartsThatRanksDescribeMakeOneTensorAndAHoleIsNeverCommitted) {
  on_ranks({.dp = 3}, {}, [&](std::size_t rank, ckpt::Run& run) {
    run.set_model({});
    const std::vector<std::byte> row(12, static_cast<std::byte>(rank + 1));
    const auto save = [&](std::uint64_t step, std::uint64_t begin) -> Result<> {
      CKPT_CHECK(run.begin(step));
      const Tensor tensor{.name = "w", .dtype = Dtype::f32, .shape = {2, 3}};
      // Rank 1 holds nothing.
      if (rank != 1) {
        CKPT_CHECK(run.saver().add({.described = tensor,
                                    .chunk = {.box = {.offset = {rank == 0 ? begin : 1, 0}, .size = {1, 3}}},
                                    .memory = {.data = row.data(), .bytes = 12}}));
      }
      // All ranks the same blob, and one of nothing.
      const std::vector<std::byte> same(5, std::byte{9});
      for (const std::uint64_t bytes : {std::uint64_t{5}, std::uint64_t{0}}) {
        CKPT_CHECK(run.saver().add(
            {.described =
                 Tensor{
                     .name = "blob" + std::to_string(bytes), .dtype = Dtype::u8, .shape = {bytes}, .role = Role::blob},
             .chunk = {.box = Box::whole({bytes})},
             .memory = {.data = bytes == 0 ? nullptr : same.data(), .bytes = bytes}}));
      }
      CKPT_TRY(const auto pending, run.commit({}));
      return run.saver().wait(pending, 120s);
    };
    const auto whole = save(1, 0);
    ASSERT_TRUE(whole) << whole.error().message;
    // Nobody gives the first row.
    const auto holed = save(2, 1);
    ASSERT_FALSE(holed);
    EXPECT_EQ(exit_code(holed.error()), 2) << holed.error().message;
    EXPECT_NE(holed.error().message.find("w: 3 of 6 elements are in no file"), std::string::npos)
        << holed.error().message;
    const auto again = save(2, 0);
    ASSERT_TRUE(again) << again.error().message;
    std::vector<std::byte> w(24);
    std::vector<std::byte> blob(5);
    const std::vector<NamedRead> reads = {{.name = "w", .out = w.data(), .bytes = 24},
                                          {.name = "blob5", .out = blob.data(), .bytes = 5},
                                          {.name = "blob0"}};
    const auto loaded = run.load(reads, false);
    ASSERT_TRUE(loaded) << loaded.error().message << loaded.error().hint;
    EXPECT_EQ(loaded->step, 2u);
    EXPECT_EQ(w[0], std::byte{1});
    EXPECT_EQ(w[23], std::byte{3});
    EXPECT_EQ(blob[4], std::byte{9});
  });
  EXPECT_EQ(names(), (std::vector<std::string>{"step-000000001.g1", "step-000000002.g2"}));
}

TEST_F(RunTest, WhatACrashedSaveLeftIsSweptAndNeverListed) {
  on_ranks(kAlone, {}, [](std::size_t, ckpt::Run& run) { ASSERT_TRUE(save_step(run, 1)); });
  fs::copy(run_ + "/step-000000001.g1", run_ + "/step-000000002.partial-00112233445566778899aabbccddeeff",
           fs::copy_options::recursive);
  on_ranks(kAlone, {}, [](std::size_t, ckpt::Run& run) { EXPECT_EQ(load_all(run).value(), 1u); });
  EXPECT_EQ(names(), (std::vector<std::string>{"step-000000001.g1"}));
}

TEST_F(RunTest, WhatOthersCallPartialStays) {
  on_ranks(kAlone, {}, [](std::size_t, ckpt::Run& run) { ASSERT_TRUE(save_step(run, 1)); });
  const std::string id(32, 'a');
  const std::set<std::string> theirs{"my.partial-results",
                                     "report.partial-draft.md",
                                     "notes.partial-" + id,
                                     "step-000000002.partial-0123",
                                     "step-000000002.partial-" + std::string(32, 'A'),
                                     "step-2.partial-" + id,
                                     "notes.partial-" + id + ".leaves"};
  for (const std::string& name : theirs) {
    fs::create_directories(run_ + "/" + name);
    std::ofstream(run_ + "/" + name + "/file") << "work";
  }
  on_ranks(kAlone, {}, [](std::size_t, ckpt::Run& run) { EXPECT_EQ(load_all(run).value(), 1u); });
  for (const std::string& name : theirs) EXPECT_TRUE(fs::exists(run_ + "/" + name + "/file")) << name;
}

TEST_F(RunTest, ADirectoryThatCannotBeMadeIsRefusedOnAllRanks) {
  std::ofstream(directory_.path() + "/file") << "in the way";
  with_runs(kPair, directory_.path() + "/file/run", {}, real_io, [](std::size_t, auto run) { EXPECT_FALSE(run); });
}

}  // namespace
}  // namespace ckpt::test
