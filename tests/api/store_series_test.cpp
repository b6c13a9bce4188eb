// In which series of its run a trainer's save stands: what a roll-back leaves behind, and what it must not.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "api/run/store.hpp"
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

class StoreSeries : public testing::Test {
 protected:
  void run(const StoreOptions& options, const std::function<void(Store& store)>& body) const {
    with_stores(
        JobLayout{}, run_, options, [](std::size_t) { return series_io(); },
        [&](std::size_t, auto store) {
          ASSERT_TRUE(store) << store.error().message;
          body(**store);
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

TEST_F(StoreSeries, ARollBackLeavesTheLaterStepsOfTheOldSeriesBehind) {
  run({}, [](Store& store) {
    for (const std::uint64_t step : {10u, 20u, 30u}) ASSERT_TRUE(save_step(store, step));
  });
  // The newest two cannot be used: the job resumes from step 10.
  for (const char* name : {"/step-000000020.g2", "/step-000000030.g3"}) lose_data(run_ + name);
  std::string told;
  const StoreOptions options{.log = [&](const std::string& text) { told += text + "\n"; }};
  run(options, [&](Store& store) {
    ASSERT_EQ(load_all(store).value(), 10u);
    const auto saved = save_step(store, 15);
    ASSERT_TRUE(saved) << saved.error().message;
  });
  for (const char* name : {"/step-000000020.g2", "/step-000000030.g3"}) lose_data(run_ + name, false);
  EXPECT_EQ(run_of(run_ + "/step-000000015.g4").series_from, 10u);
  EXPECT_NE(told.find("series 1 begins: checkpoints of this run after step 10 are superseded"), std::string::npos)
      << told;
  run({}, [](Store& store) { EXPECT_EQ(load_all(store).value(), 15u); });
  // With the new one gone the roll-back is forgotten; while it is there step 30 never comes back.
  std::ofstream(run_ + "/step-000000015.g4/shards/weights/00000-00000.safetensors", std::ios::trunc) << "gone";
  run({}, [](Store& store) { EXPECT_EQ(load_all(store).value(), 10u); });
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

TEST_F(StoreSeries, WhatARollBackLeftBehindStaysSoWhenItsSeriesIsInTheTrash) {
  run({}, [](Store& store) {
    for (const std::uint64_t step : {10u, 20u, 30u}) ASSERT_TRUE(save_step(store, step));
  });
  for (const char* name : {"/step-000000020.g2", "/step-000000030.g3"}) lose_data(run_ + name);
  run({}, [&](Store& store) {
    ASSERT_EQ(load_all(store).value(), 10u);
    ASSERT_TRUE(save_step(store, 15));
  });
  for (const char* name : {"/step-000000020.g2", "/step-000000030.g3"}) lose_data(run_ + name, false);
  put_into_trash(directory_.path(), "step-000000015.g4", 15);
  run({}, [](Store& store) { EXPECT_EQ(load_all(store).value(), 10u); });
  // Then the last one that counts: what is left behind is all there is.
  put_into_trash(directory_.path(), "step-000000010.g1", 10);
  run({}, [](Store& store) { EXPECT_EQ(load_all(store).value(), 30u); });
  lose_data(run_ + "/step-000000030.g3");
  run({}, [](Store& store) { EXPECT_EQ(load_all(store).value(), 20u); });
}

TEST_F(StoreSeries, NoSeriesBeginsBelowOneThatExistsWhateverTheNewestManifestSays) {
  run({}, [](Store& store) { ASSERT_TRUE(save_step(store, 10)); });
  for (const std::uint64_t step : {20u, 30u}) {  // two jobs that load nothing: series 1 and 2
    run({}, [&](Store& store) { ASSERT_TRUE(save_step(store, step)); });
  }
  const std::string newest = run_ + "/step-000000030.g3";
  ASSERT_EQ(run_of(newest).series, 2u);
  std::ofstream(newest + "/manifest.json", std::ios::trunc) << "{";
  run({}, [](Store& store) {
    ASSERT_EQ(load_all(store).value(), 20u);
    ASSERT_TRUE(save_step(store, 25));
  });
  EXPECT_EQ(run_of(run_ + "/step-000000025.g4").series, 3u) << "the copy of the manifest tells";
  std::ofstream(newest + "/index/manifest.json", std::ios::trunc) << "{";
  std::ofstream(run_ + "/step-000000025.g4/manifest.json", std::ios::trunc) << "{";
  std::ofstream(run_ + "/step-000000025.g4/index/manifest.json", std::ios::trunc) << "{";
  run({}, [](Store& store) { ASSERT_TRUE(save_step(store, 40)); });
  EXPECT_EQ(run_of(run_ + "/step-000000040.g5").series, 2u) << "the greatest that can be read is 1";
}

TEST_F(StoreSeries, WhatOthersSaveAfterTheLoadIsNotLeftBehind) {
  run({}, [](Store& store) {
    for (const std::uint64_t step : {10u, 20u}) ASSERT_TRUE(save_step(store, step));
  });
  run({}, [&](Store& store) {
    ASSERT_EQ(load_all(store).value(), 20u);
    // Another job goes on from the same checkpoint, and is faster.
    run({}, [](Store& other) {
      ASSERT_EQ(load_all(other).value(), 20u);
      ASSERT_TRUE(save_step(other, 30));
    });
    ASSERT_TRUE(save_step(store, 25));
  });
  const universal::Run saved = run_of(run_ + "/step-000000025.g4");
  EXPECT_EQ(saved.series, 0u);
  EXPECT_FALSE(saved.series_from);
  // One that did go back leaves behind what stood there when it loaded, and nothing that came later.
  lose_data(run_ + "/step-000000025.g4");
  run({}, [&](Store& store) {
    ASSERT_EQ(load_all(store).value(), 30u);
    run({}, [](Store& other) { ASSERT_TRUE(save_step(other, 40)); });
    ASSERT_TRUE(save_step(store, 35));
  });
  EXPECT_EQ(run_of(run_ + "/step-000000040.g5").series, 1u);
  EXPECT_EQ(run_of(run_ + "/step-000000035.g6").series, 2u);
  EXPECT_FALSE(run_of(run_ + "/step-000000035.g6").series_from);
}

}  // namespace
}  // namespace ckpt::test
