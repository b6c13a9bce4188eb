// In which series of its run a trainer's save stands: what a roll-back leaves behind, and what it must not.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "api/run/run.hpp"
#include "api/run/run_copies.hpp"
#include "catalog/trash/record.hpp"
#include "engine/store/run_directory.hpp"
#include "support/temp_dir.hpp"
#include "support/training_job.hpp"

namespace ckpt::test {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<Io> series_io() {
  auto io = open_io(IoKind::automatic, 8);
  return io ? std::move(*io) : nullptr;
}

class RunSeries : public testing::Test {
 protected:
  void on_ranks(const ckpt::Run::Options& options, const std::function<void(ckpt::Run& run)>& body) const {
    with_runs(
        JobLayout{}, run_, options, [](std::size_t) { return series_io(); },
        [&](std::size_t, auto run) {
          ASSERT_TRUE(run) << run.error().message;
          body(**run);
        });
  }

  const TempDir directory_{memory_temp_dir()};
  const std::string run_ = directory_.path() + "/run";
};

/// Takes a checkpoint's data away, or gives it back.
void lose_data(const std::string& checkpoint, bool lost = true) {
  const std::string data = checkpoint + "/shards";
  fs::rename(lost ? data : data + ".aside", lost ? data + ".aside" : data);
}

universal::Run run_of(const std::string& checkpoint) {
  const auto manifest = read_manifest(*series_io(), checkpoint);
  EXPECT_TRUE(manifest && manifest->run) << checkpoint;
  return manifest && manifest->run ? *manifest->run : universal::Run{};
}

TEST_F(RunSeries, WhatCannotBeReadIsNotCountedAmongTheNewestThatAreRead) {
  on_ranks({}, [](ckpt::Run& run) {
    for (const std::uint64_t step : {10u, 20u, 30u}) ASSERT_TRUE(save_step(run, step));
  });
  for (std::uint64_t n = 1; n <= 4; ++n) {
    const std::string torn = run_ + "/" + CheckpointName{.step = 100 + n, .generation = 10 + n}.text();
    fs::create_directory(torn);
    std::ofstream(torn + "/manifest.json") << "{ torn";
  }
  const auto seen = list_copies(*series_io(), run_, "", 2);
  ASSERT_TRUE(seen);
  ASSERT_EQ(seen->size(), 7U);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ((*seen)[i].run.has_value(), i == 4 || i == 5) << i;
}

TEST_F(RunSeries, OnlyALoadDecidesWhereSavesContinueNotALook) {
  on_ranks({}, [](ckpt::Run& run) {
    for (const std::uint64_t step : {10u, 20u, 30u, 40u}) ASSERT_TRUE(save_step(run, step));
  });
  on_ranks({}, [](ckpt::Run& run) {
    ASSERT_TRUE(run.load({}, true, {}, 20));
    ASSERT_TRUE(run.usable());
    ASSERT_TRUE(run.usable(40));
    EXPECT_FALSE(run.load({}, true, {}, 7));
    ASSERT_TRUE(save_step(run, 25));
  });
  EXPECT_EQ(run_of(run_ + "/step-000000025.g5").series_from, 20u);
  on_ranks({}, [](ckpt::Run& run) {
    ASSERT_TRUE(run.load({}, true));
    ASSERT_TRUE(run.usable(10));
    EXPECT_FALSE(run.load({}, true, {}, 7));
    ASSERT_TRUE(save_step(run, 30));
  });
  EXPECT_EQ(run_of(run_ + "/step-000000030.g6").series, 1u);
  on_ranks({}, [](ckpt::Run& run) {  // which has read the tensors by itself
    const auto seen = run.usable(10);
    ASSERT_TRUE(seen);
    const auto other = run.usable(25);
    ASSERT_TRUE(other);
    EXPECT_EQ(run.loaded(seen->get()).error().code, Errc::usage);
    ASSERT_TRUE(run.loaded(other->get()));
    ASSERT_TRUE(save_step(run, 26));
  });
  const universal::Run last = run_of(run_ + "/step-000000026.g7");
  EXPECT_EQ(last.series, 2u);
  EXPECT_EQ(last.series_from, 25u);
}

TEST_F(RunSeries, WhoGoesBackToWhatWasSupersededStandsOnItAgain) {
  const auto save_after = [&](std::uint64_t loaded, std::vector<std::uint64_t> steps) {
    on_ranks({}, [&](ckpt::Run& run) {
      ASSERT_TRUE(run.load({}, true, {}, loaded));
      for (const std::uint64_t step : steps) ASSERT_TRUE(save_step(run, step));
    });
  };
  on_ranks({}, [](ckpt::Run& run) {
    for (const std::uint64_t step : {10u, 20u, 30u}) ASSERT_TRUE(save_step(run, step));
  });
  save_after(10, {15, 25});
  save_after(30, {40, 50});
  for (const char* name : {"/step-000000040.g6", "/step-000000050.g7"}) {
    EXPECT_EQ(run_of(run_ + name).series_from, 30u);
    EXPECT_EQ(run_of(run_ + name).series_after, 0u);
  }
  const auto usable_without = [&](const std::string& lost) {
    lose_data(run_ + lost);
    std::uint64_t out = 0;
    on_ranks({}, [&](ckpt::Run& run) {
      const auto found = run.usable();
      ASSERT_TRUE(found) << found.error().message;
      out = (*found)->step();
    });
    return out;
  };
  EXPECT_EQ(usable_without("/step-000000050.g7"), 40u);
  EXPECT_EQ(usable_without("/step-000000040.g6"), 30u) << "25 is of the branch that was left";
}

TEST_F(RunSeries, OfTheBranchThatWasLeftAlsoAJobThatLoadedNothingIsLeft) {
  const auto job = [&](std::optional<std::uint64_t> loaded, std::vector<std::uint64_t> steps) {
    on_ranks({}, [&](ckpt::Run& run) {
      if (loaded) {
        ASSERT_TRUE(run.load({}, true, {}, *loaded));
      }
      for (const std::uint64_t step : steps) ASSERT_TRUE(save_step(run, step));
    });
  };
  job(std::nullopt, {10, 20, 30});
  job(10, {15});
  job(std::nullopt, {17});
  job(30, {35});
  lose_data(run_ + "/step-000000035.g6");
  on_ranks({}, [](ckpt::Run& run) {
    const auto found = run.usable();
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ((*found)->step(), 30u);
  });
}

TEST_F(RunSeries, ARunBehindALinkStaysTheSameWhenAStoreIsMadeAboveIt) {
  fs::create_directories(directory_.path() + "/real");
  fs::create_directory_symlink("real", directory_.path() + "/lnk");
  const std::string linked = directory_.path() + "/lnk/run";
  with_runs(
      JobLayout{}, linked, {}, [](std::size_t) { return series_io(); },
      [&](std::size_t, auto run) {
        ASSERT_TRUE(run) << run.error().message;
        ASSERT_TRUE(save_step(**run, 1));
        fs::create_directories(directory_.path() + "/.ckpt/inbox");
        const auto second = save_step(**run, 2);
        EXPECT_TRUE(second) << second.error().message;
      });
  EXPECT_TRUE(fs::exists(directory_.path() + "/real/run/step-000000002.g2/manifest.json"));
}

TEST_F(RunSeries, ARollBackLeavesTheLaterStepsOfTheOldSeriesBehind) {
  on_ranks({}, [](ckpt::Run& run) {
    for (const std::uint64_t step : {10u, 20u, 30u}) ASSERT_TRUE(save_step(run, step));
  });
  // The newest two cannot be used: the job resumes from step 10.
  for (const char* name : {"/step-000000020.g2", "/step-000000030.g3"}) lose_data(run_ + name);
  std::string told;
  const ckpt::Run::Options options{.log = [&](const std::string& text) { told += text + "\n"; }};
  on_ranks(options, [&](ckpt::Run& run) {
    ASSERT_EQ(load_all(run).value(), 10u);
    const auto saved = save_step(run, 15);
    ASSERT_TRUE(saved) << saved.error().message;
  });
  for (const char* name : {"/step-000000020.g2", "/step-000000030.g3"}) lose_data(run_ + name, false);
  EXPECT_EQ(run_of(run_ + "/step-000000015.g4").series_from, 10u);
  EXPECT_NE(told.find("series 1 begins: checkpoints of this run after step 10 are superseded"), std::string::npos)
      << told;
  on_ranks({}, [](ckpt::Run& run) { EXPECT_EQ(load_all(run).value(), 15u); });
  // With the new one gone the roll-back is forgotten; while it is there step 30 never comes back.
  std::ofstream(run_ + "/step-000000015.g4/shards/weights/00000-00000.safetensors", std::ios::trunc) << "gone";
  on_ranks({}, [](ckpt::Run& run) { EXPECT_EQ(load_all(run).value(), 10u); });
}

TEST_F(RunSeries, AJobThatGoesBackToAStepBetweenItsSavesBeginsASeries) {
  const auto load_step = [](ckpt::Run& run, std::uint64_t step) { return run.load({}, true, {}, step).value().step; };
  on_ranks({}, [&](ckpt::Run& run) {
    for (const std::uint64_t step : {10u, 20u, 30u}) ASSERT_TRUE(save_step(run, step));
    ASSERT_EQ(load_step(run, 10), 10u);  // a look: training goes on after 30
    ASSERT_TRUE(save_step(run, 40));
    ASSERT_EQ(load_step(run, 20), 20u);
    ASSERT_TRUE(save_step(run, 30));
    ASSERT_TRUE(save_step(run, 40));
    EXPECT_EQ(run.steps().value(), (std::vector<std::uint64_t>{40, 30, 20, 10}));
    EXPECT_FALSE(run.load({}, true, {}, 15));
  });
  EXPECT_EQ(run_of(run_ + "/step-000000040.g4").series, run_of(run_ + "/step-000000030.g3").series);
  for (const char* name : {"/step-000000030.g5", "/step-000000040.g6"}) {
    EXPECT_EQ(run_of(run_ + name).series, run_of(run_ + "/step-000000040.g4").series + 1);
    EXPECT_EQ(run_of(run_ + name).series_from, 20u);
  }
}

/// As a deletion leaves it.
void put_into_trash(const std::string& store, const std::string& name, std::uint64_t step) {
  const universal::Run series = run_of(store + "/run/" + name);
  const std::string trash = store + "/.ckpt/trash/run";
  fs::create_directories(trash);
  fs::rename(store + "/run/" + name, trash + "/" + name);
  std::ofstream(trash + "/" + name + ".json")
      << catalog::record_text({.step = step, .series = series.series, .series_from = series.series_from});
}

TEST_F(RunSeries, WhatARollBackLeftBehindStaysSoWhenItsSeriesIsInTheTrash) {
  on_ranks({}, [](ckpt::Run& run) {
    for (const std::uint64_t step : {10u, 20u, 30u}) ASSERT_TRUE(save_step(run, step));
  });
  for (const char* name : {"/step-000000020.g2", "/step-000000030.g3"}) lose_data(run_ + name);
  on_ranks({}, [&](ckpt::Run& run) {
    ASSERT_EQ(load_all(run).value(), 10u);
    ASSERT_TRUE(save_step(run, 15));
  });
  for (const char* name : {"/step-000000020.g2", "/step-000000030.g3"}) lose_data(run_ + name, false);
  put_into_trash(directory_.path(), "step-000000015.g4", 15);
  on_ranks({}, [](ckpt::Run& run) { EXPECT_EQ(load_all(run).value(), 10u); });
  // Then the last one that counts: what is left behind is all there is.
  put_into_trash(directory_.path(), "step-000000010.g1", 10);
  on_ranks({}, [](ckpt::Run& run) { EXPECT_EQ(load_all(run).value(), 30u); });
  lose_data(run_ + "/step-000000030.g3");
  on_ranks({}, [](ckpt::Run& run) { EXPECT_EQ(load_all(run).value(), 20u); });
}

TEST_F(RunSeries, NoSeriesBeginsBelowOneThatExistsWhateverTheNewestManifestSays) {
  on_ranks({}, [](ckpt::Run& run) { ASSERT_TRUE(save_step(run, 10)); });
  for (const std::uint64_t step : {20u, 30u}) {  // two jobs that load nothing: series 1 and 2
    on_ranks({}, [&](ckpt::Run& run) { ASSERT_TRUE(save_step(run, step)); });
  }
  const std::string newest = run_ + "/step-000000030.g3";
  ASSERT_EQ(run_of(newest).series, 2u);
  std::ofstream(newest + "/manifest.json", std::ios::trunc) << "{";
  on_ranks({}, [](ckpt::Run& run) {
    ASSERT_EQ(load_all(run).value(), 20u);
    ASSERT_TRUE(save_step(run, 25));
  });
  EXPECT_EQ(run_of(run_ + "/step-000000025.g4").series, 3u) << "the copy of the manifest tells";
  std::ofstream(newest + "/index/manifest.json", std::ios::trunc) << "{";
  std::ofstream(run_ + "/step-000000025.g4/manifest.json", std::ios::trunc) << "{";
  std::ofstream(run_ + "/step-000000025.g4/index/manifest.json", std::ios::trunc) << "{";
  on_ranks({}, [](ckpt::Run& run) { ASSERT_TRUE(save_step(run, 40)); });
  EXPECT_EQ(run_of(run_ + "/step-000000040.g5").series, 2u) << "the greatest that can be read is 1";
}

TEST_F(RunSeries, WhatOthersSaveAfterTheLoadIsNotLeftBehind) {
  on_ranks({}, [](ckpt::Run& run) {
    for (const std::uint64_t step : {10u, 20u}) ASSERT_TRUE(save_step(run, step));
  });
  on_ranks({}, [&](ckpt::Run& run) {
    ASSERT_EQ(load_all(run).value(), 20u);
    // Another job goes on from the same checkpoint, and is faster.
    on_ranks({}, [](ckpt::Run& other) {
      ASSERT_EQ(load_all(other).value(), 20u);
      ASSERT_TRUE(save_step(other, 30));
    });
    ASSERT_TRUE(save_step(run, 25));
  });
  const universal::Run saved = run_of(run_ + "/step-000000025.g4");
  EXPECT_EQ(saved.series, 0u);
  EXPECT_FALSE(saved.series_from);
  // One that did go back leaves behind what stood there when it loaded, and nothing that came later.
  lose_data(run_ + "/step-000000025.g4");
  on_ranks({}, [&](ckpt::Run& run) {
    ASSERT_EQ(load_all(run).value(), 30u);
    on_ranks({}, [](ckpt::Run& other) { ASSERT_TRUE(save_step(other, 40)); });
    ASSERT_TRUE(save_step(run, 35));
  });
  EXPECT_EQ(run_of(run_ + "/step-000000040.g5").series, 1u);
  EXPECT_EQ(run_of(run_ + "/step-000000035.g6").series, 2u);
  EXPECT_FALSE(run_of(run_ + "/step-000000035.g6").series_from);
}

}  // namespace
}  // namespace ckpt::test
