// What waits in the trash, told by the index: always what the records say, without reading those that did not change.
#include "catalog/index/trash_index.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include "catalog/index/catalog.hpp"
#include "store_builder.hpp"
#include "support/fault_io.hpp"

namespace ckpt::catalog {
namespace {

namespace fs = std::filesystem;
using test::StoreBuilder;

/// Long after everything that a test does: directories then count as settled.
const Time kLater =
    Time(std::chrono::floor<Duration>(std::chrono::system_clock::now().time_since_epoch())) + std::chrono::hours(24);

/// A trash that is filled by hand.
class TrashIndex : public testing::Test {
 protected:
  /// Longer than the clocks of file systems are coarse, so that every change of a directory changes its time.
  static void let_clocks_move() { std::this_thread::sleep_for(std::chrono::milliseconds(12)); }
  TrashIndex() : database_(*Database::open(store_.path() + "/index.sqlite", {})) {}

  fs::path place(const std::string& run, const std::string& name) const {
    return fs::path(trash_path(store_.path())) / (run == "." ? "" : run) / name;
  }
  /// A record is put in place by a rename, as by whoever deletes.
  void put_record(const std::string& run, const std::string& name, const std::string& text) {
    fs::create_directories(place(run, ""));
    const fs::path record = place(run, name + ".json");
    std::ofstream(record.string() + ".new") << text;
    fs::rename(record.string() + ".new", record);
    let_clocks_move();
  }
  void put(const std::string& run, const std::string& name, const TrashRecord& record) {
    put_record(run, name, record_text(record));
    fs::create_directories(place(run, name));
  }
  static TrashRecord record(std::uint64_t bytes, int hours) {
    return {.id = "ab",
            .series = bytes,
            .series_from = 10 * bytes,
            .bytes = bytes,
            .purge_at = kLater + std::chrono::hours(hours)};
  }

  InTrash indexed(const std::string& run = "", Time now = kLater) {
    const auto out = measure_indexed_trash(store_.io(), store_.path(), database_, run, now);
    EXPECT_TRUE(out) << out.error().message;
    return out.value_or(InTrash{});
  }
  void expect_as_recorded(const std::string& what) {
    let_clocks_move();
    for (const std::string run : {"", ".", "r", "a/b", "gone"}) {
      for (const int hours : {-2, 0, 2}) {
        const Time now = kLater + std::chrono::hours(hours);
        const InTrash seen = indexed(run, now);
        const auto read = measure_trash(store_.io(), store_.path(), run, now);
        ASSERT_TRUE(read);
        EXPECT_EQ(text_of(seen), text_of(*read)) << what << ", run '" << run << "', " << hours << " h";
      }
      const auto births = indexed_births(store_.io(), store_.path(), database_, run, kLater);
      const auto entries = list_trash(store_.io(), store_.path());
      ASSERT_TRUE(births && entries);
      EXPECT_EQ(text_of(*births, run), text_of(births_of(*entries), run)) << what << ", run '" << run << "'";
    }
  }
  /// Of a run, or of all: each series once, from the greatest step that a record names.
  static std::string text_of(const std::vector<SeriesBirth>& births, const std::string& run) {
    std::map<std::pair<std::string, std::uint64_t>, std::pair<std::uint64_t, std::uint64_t>> all;
    for (const SeriesBirth& one : births) {
      if (!run.empty() && one.run != run) continue;
      auto& [from, after] = all[{one.run, one.series}];
      from = std::max(from, one.from.value_or(0));
      after = std::max(after, one.after.value_or(0));
    }
    std::string out;
    for (const auto& [series, start] : all)
      out += fmt::format("{} {} {} {}\n", series.first, series.second, start.first, start.second);
    return out;
  }
  static std::string text_of(const InTrash& trash) {
    const auto time = [](const std::optional<Time>& one) { return one ? one->time_since_epoch().count() : -1; };
    std::string out;
    for (const std::uint64_t one : {trash.checkpoints, trash.optimizers, trash.bytes, trash.over, trash.unrecorded})
      out += std::to_string(one) + " ";
    return out + std::to_string(time(trash.first_over)) + " " + std::to_string(time(trash.last_over));
  }

  StoreBuilder store_;
  Database database_;
};

TEST_F(TrashIndex, AnEmptyTrashIsEmpty) {
  expect_as_recorded("no trash");
  put("r", "step-000000001.g1", record(5, 1));
  expect_as_recorded("one");
  fs::remove_all(trash_path(store_.path()));
  expect_as_recorded("no trash again");
}

TEST_F(TrashIndex, ARecordIsReadOnceUntilItsDirectoryChanges) {
  const std::string name = "step-000000001.g1";
  put("r", name, record(5, 1));
  EXPECT_EQ(indexed().bytes, 5U);
  std::ofstream(place("r", name + ".json")) << record_text(record(6, 1));  // in its place, as nobody does
  EXPECT_EQ(indexed().bytes, 5U) << "it was read without need";
  put("r", "step-000000002.g2", record(10, 1));
  EXPECT_EQ(indexed().bytes, 16U);
  std::ofstream(place("r", name + ".json")) << record_text(record(7, 1));
  ASSERT_TRUE(forget_trash(database_));
  EXPECT_EQ(indexed().bytes, 17U);
}

TEST_F(TrashIndex, ARebuildOfTheCatalogForgetsIt) {
  put("r", "step-000000001.g1", record(5, 1));
  const auto measured = [&](Trust trust) {
    auto catalog = Catalog::open(store_.io(), store_.path(), {.trust = trust, .now = kLater});
    EXPECT_TRUE(catalog);
    return measure_indexed_trash(store_.io(), store_.path(), catalog->database(), "", kLater)->bytes;
  };
  EXPECT_EQ(measured(Trust::notes), 5U);
  std::ofstream(place("r", "step-000000001.g1.json")) << record_text(record(6, 1));
  EXPECT_EQ(measured(Trust::notes), 5U);
  EXPECT_EQ(measured(Trust::nothing), 6U);
}

TEST_F(TrashIndex, WhatWasListedJustNowIsListedAgain) {
  const Time now = Time(std::chrono::floor<Duration>(std::chrono::system_clock::now().time_since_epoch()));
  put("r", "step-000000001.g1", record(5, 1));
  EXPECT_EQ(indexed("", now).bytes, 5U);
  std::ofstream(place("r", "step-000000001.g1.json")) << record_text(record(6, 1));
  EXPECT_EQ(indexed("", now).bytes, 6U) << "a change may have left the directory its time";
}

TEST_F(TrashIndex, ARecordThatCannotBeReadIsReadAgain) {
  put_record("r", "step-000000001.g1", "{");
  fs::create_directories(place("r", "step-000000001.g1"));
  EXPECT_EQ(indexed().unrecorded, 1U);
  std::ofstream(place("r", "step-000000001.g1.json")) << record_text(record(6, 1));
  EXPECT_EQ(indexed().unrecorded, 0U);
  EXPECT_EQ(indexed().bytes, 6U);
}

TEST_F(TrashIndex, ASeriesIsKnownAfterItsCheckpointsWerePurged) {
  put("r", "step-000000001.g1", record(5, 1));
  expect_as_recorded("in the trash");
  fs::remove_all(place("r", "step-000000001.g1"));
  let_clocks_move();
  expect_as_recorded("purged");
  const auto births = indexed_births(store_.io(), store_.path(), database_, "r", kLater);
  ASSERT_TRUE(births);
  EXPECT_EQ(text_of(*births, "r"), "r 5 50 0\n");
}

TEST_F(TrashIndex, AnIndexThatCannotBeWrittenCostsOnlyTime) {
  put("r", "step-000000001.g1", record(5, 1));
  const std::string file = store_.path() + "/index.sqlite";
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(file.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  database_ = *Database::open(file, {.patience = std::chrono::milliseconds(1)});
  EXPECT_EQ(indexed().bytes, 5U);
  const auto births = indexed_births(store_.io(), store_.path(), database_, "r", kLater);
  ASSERT_TRUE(births);
  EXPECT_EQ(text_of(*births, "r"), "r 5 50 0\n");
  sqlite3_close(other);
}

/// Names of every kind in runs of every depth, changed at random, with the index brought up in between.
TEST_F(TrashIndex, TellsWhatTheRecordsTellAfterAnyHistory) {
  std::mt19937_64 random(11);
  const auto any = [&](std::uint64_t below) { return random() % below; };
  const std::vector<std::string> runs{".", "r", "a", "a/b"};
  for (int turn = 0; turn < 60; ++turn) {
    for (std::uint64_t n = any(4); n != 0; --n) {
      const std::string& run = runs[any(runs.size())];
      const std::string name = "step-00000000" + std::to_string(any(5)) + ".g1";
      TrashRecord one = record(any(100), static_cast<int>(any(5)) - 2);
      switch (any(9)) {
        case 0:
          one.state = TrashRecord::State::purging;
          put(run, name, one);
          break;
        case 1:
          one.dropped = "optim";
          put(run, name + ".optim", one);
          break;
        case 2:
          fs::remove_all(place(run, name));  // its record stays
          break;
        case 3:
          fs::create_directories(place(run, name));
          fs::remove(place(run, name + ".json"));
          break;
        case 4:
          put_record(run, name, "no record");
          break;
        case 5:
          if (run != ".") fs::remove_all(place(run, ""));
          break;
        case 6:
          fs::create_directories(place(run, ""));
          fs::remove_all(place(run, name));
          fs::create_directory_symlink("/", place(run, name));
          break;
        default:
          if (fs::is_symlink(place(run, name))) fs::remove(place(run, name));
          put(run, name, one);
      }
    }
    expect_as_recorded("turn " + std::to_string(turn));
    if (HasFailure()) return;
  }
}

TEST_F(TrashIndex, AFailedOperationHidesNoChange) {
  std::uint64_t bytes = 0;
  const auto add = [&](const std::string& run) {
    put(run, CheckpointName{.step = ++bytes, .generation = bytes}.text(), record(1, 1));
  };
  add("r");
  add("a/b");
  for (std::uint64_t n = 0; n < 12; ++n) {  // the directories are looked at first
    ASSERT_EQ(indexed().bytes, bytes);
    add("r");
    add("a/b");
    const auto plan = std::make_shared<FaultPlan>();
    auto inner = open_io(IoKind::threads);
    ASSERT_TRUE(inner);
    const auto faulty = make_fault_io(*std::move(inner), plan);
    plan->fail_once(n, Errc::io);
    const auto seen = measure_indexed_trash(*faulty, store_.path(), database_, "", kLater);
    const std::string failed = plan->first_failed();
    if (seen && seen->unrecorded == 0) {
      EXPECT_EQ(seen->bytes, bytes) << failed;
    }
  }
}

}  // namespace
}  // namespace ckpt::catalog
