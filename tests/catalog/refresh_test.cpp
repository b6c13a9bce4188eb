#include "catalog/index/refresh.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "catalog/entry_text.hpp"
#include "catalog/index/catalog.hpp"
#include "catalog/index/names.hpp"
#include "catalog/index/rows.hpp"
#include "catalog/index/run_summary.hpp"
#include "engine/store/inbox.hpp"
#include "store_builder.hpp"
#include "support/fault_io.hpp"

namespace ckpt::catalog {
namespace {

using test::StoreBuilder;
namespace fs = std::filesystem;

Recognised recognise_other(Io& io, const std::string& directory) {
  return {.format = io.stat(directory + "/other.bin") ? "other" : ""};
}

const OtherTools kOther{.names = test::other_names(), .recognise = recognise_other};

/// Long after everything that a test does: directories then count as settled.
const Time kLater =
    Time(std::chrono::floor<Duration>(std::chrono::system_clock::now().time_since_epoch())) + std::chrono::hours(24);

std::string scanned_text(StoreBuilder& store) {
  auto database = Database::in_memory();
  EXPECT_TRUE(database);
  const auto done = refresh(store.io(), store.path(), *database, kOther, Trust::nothing, kLater);
  EXPECT_TRUE(done) << done.error().message;
  return dump(*database);
}

Catalog open_catalog(StoreBuilder& store, Trust trust = Trust::notes) {
  auto catalog = Catalog::open(store.io(), store.path(), {.tools = kOther, .trust = trust, .now = kLater});
  EXPECT_TRUE(catalog) << catalog.error().message;
  return *std::move(catalog);
}

/// Longer than the clocks of file systems are coarse, so that every change of a directory changes its time.
void let_clocks_move() {
  std::this_thread::sleep_for(std::chrono::milliseconds(12));
}

TEST(Rows, OfOneStepTheNewestComesFirstHoweverManyAreAskedFor) {
  StoreBuilder store;
  for (const std::string name : {"iter_5", "ckpt-5", "step_5", "ckpt-4", "iter_4", "ckpt-6"}) {
    fs::create_directories(store.path() + "/r/" + name);
    std::ofstream(store.path() + "/r/" + name + "/other.bin") << "x";
  }
  Catalog catalog = open_catalog(store);
  const auto all = select_entries(catalog.database(), {});
  ASSERT_TRUE(all);
  std::vector<std::string> sorted;
  for (const Entry& entry : *all) {
    sorted.push_back(entry.name);
    const Checkpoint& first = all->front().checkpoint;
    EXPECT_TRUE(&entry == &all->front() || committed_before(entry.checkpoint, first));
    const auto newest = find_checkpoint(catalog.database(), "r@" + std::to_string(entry.checkpoint.step));
    ASSERT_TRUE(newest);
    EXPECT_FALSE(committed_before(newest->checkpoint, entry.checkpoint)) << "RUN@STEP is another one";
  }
  EXPECT_EQ(find_checkpoint(catalog.database(), "r@latest")->name, sorted.front());
  EXPECT_EQ(find_checkpoint(catalog.database(), "r@latest~2")->name, sorted[2]);
  ASSERT_EQ(sorted.size(), 6U);
  for (const std::uint64_t limit : {UINT64_MAX, std::uint64_t{6}, std::uint64_t{3}}) {
    const auto entries = select_entries(catalog.database(), {.limit = limit});
    ASSERT_TRUE(entries);
    std::vector<std::string> names;
    for (const Entry& entry : *entries) names.push_back(entry.name);
    EXPECT_EQ(names, std::vector(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(names.size())));
    EXPECT_EQ(names.size(), std::min<std::uint64_t>(limit, sorted.size()));
  }
}

TEST(Rows, HoldEverythingThatAScanTells) {
  StoreBuilder store;
  const std::string path =
      store.put("demo", 1000, 7,
                {.series = 2, .series_from = 900, .parent = std::string(32, 'a'), .user = {{"metric.loss", "1.75"}}});
  const std::string marks = marks_path(path, false);
  for (const Mark::Kind kind : {Mark::Kind::pin, Mark::Kind::tag, Mark::Kind::note, Mark::Kind::metric,
                                Mark::Kind::verified, Mark::Kind::restored, Mark::Kind::reference}) {
    const Mark mark{.kind = kind,
                    .name = "n\n'; DROP TABLE pins; --",
                    .text = "t",
                    .owner = "o",
                    .at = kLater,
                    .until = kind == Mark::Kind::pin ? std::optional(kLater) : std::nullopt,
                    .value = 1};
    ASSERT_TRUE(write_mark(store.io(), marks, mark));
  }
  ASSERT_TRUE(write_mark(store.io(), marks, {.kind = Mark::Kind::metric, .name = "odd", .value = std::nan("")}));
  store.put_foreign("ds", "global_step3");
  test::write_file(store.path() + "/ds/latest", "global_step3");
  const auto scanned = scan(store.io(), store.path(), kOther);
  ASSERT_TRUE(scanned);
  std::string expected;
  for (Entry entry : scanned->entries) {
    std::stable_sort(entry.marks.begin(), entry.marks.end(), [](const Mark& a, const Mark& b) {
      return std::pair(a.kind, a.name) < std::pair(b.kind, b.name);
    });
    expected += text_of(entry);
  }
  Catalog catalog = open_catalog(store);
  const std::string seen = dump(catalog.database());
  EXPECT_EQ(seen.substr(seen.find("demo|")), expected.substr(expected.find("demo|")));
  EXPECT_EQ(seen, expected);
}

TEST(Refresh, ReadsNothingWhereNothingChanged) {
  StoreBuilder store;
  store.put("a", 1, 1);
  store.put("a", 2, 2);
  EXPECT_EQ(open_catalog(store).refreshed().read, 2U);
  EXPECT_EQ(open_catalog(store).refreshed().read, 0U);
  store.put("a", 3, 3);
  EXPECT_EQ(open_catalog(store).refreshed().read, 1U);
}

TEST(Refresh, ANoteTellsOfAMarkThatTheRunsDirectoryDoesNotShow) {
  StoreBuilder store;
  const std::string path = store.put("a", 1, 1);
  open_catalog(store);
  ASSERT_TRUE(write_mark(store.io(), path + "/marks", {.kind = Mark::Kind::tag, .name = "t"}));
  EXPECT_EQ(open_catalog(store).refreshed().read, 0U);
  EXPECT_EQ(open_catalog(store, Trust::nothing_unseen).refreshed().read, 1U);
  ASSERT_TRUE(write_mark(store.io(), path + "/marks", {.kind = Mark::Kind::tag, .name = "u"}));
  drop_note(store.io(), store.path() + "/a", "step-000000001.g1", "u");
  EXPECT_FALSE(read_inbox(store.io(), store.path()).empty());
  Catalog catalog = open_catalog(store);
  EXPECT_EQ(catalog.refreshed().read, 1U);
  EXPECT_EQ(dump(catalog.database()), scanned_text(store));
  EXPECT_TRUE(read_inbox(store.io(), store.path()).empty()) << "folded in";
}

TEST(Refresh, WhatCannotBeReadIsReadAgainTheNextTime) {
  StoreBuilder store;
  const std::string path = store.put("a", 1, 1);
  store.put("a", 2, 2);
  fs::rename(path + "/manifest.json", path + "/aside");
  fs::create_directory(path + "/manifest.json");
  {
    Catalog catalog = open_catalog(store);
    EXPECT_EQ(catalog.refreshed().read, 2U);
    EXPECT_EQ(summarise_runs(catalog.database())->at(0).unreadable, 1U);
  }
  // Below the run's directory, which stays as it is.
  fs::remove(path + "/manifest.json");
  fs::rename(path + "/aside", path + "/manifest.json");
  Catalog catalog = open_catalog(store);
  EXPECT_EQ(catalog.refreshed().read, 1U);
  EXPECT_EQ(dump(catalog.database()), scanned_text(store));
  EXPECT_EQ(open_catalog(store).refreshed().read, 0U);
}

TEST(Refresh, WhatAFailedOperationHidIsSeenTheNextTime) {
  StoreBuilder store;
  store.put("a", 1, 1);
  const std::string pinned = store.put("a", 2, 2);
  ASSERT_TRUE(write_mark(store.io(), pinned + "/marks", {.kind = Mark::Kind::pin, .name = "p"}));
  store.put("deep/b", 1, 1);
  store.put_foreign("ds", "global_step3");
  test::write_file(store.path() + "/ds/latest", "global_step3");
  store.put_foreign("plain", "global_step4");
  const std::string all = scanned_text(store);
  const auto refreshed = [&](Io& io, Database& database, Trust trust) {
    return refresh(io, store.path(), database, kOther, trust, kLater);
  };
  for (const bool is_known : {false, true}) {
    for (const Trust trust : {Trust::notes, Trust::nothing_unseen}) {
      if (!is_known && trust != Trust::notes) continue;  // everything is read anyway
      for (std::uint64_t n = 0;; ++n) {
        auto database = Database::in_memory();
        ASSERT_TRUE(database);
        if (is_known) {
          ASSERT_TRUE(refreshed(store.io(), *database, Trust::notes));
        }
        const auto plan = std::make_shared<FaultPlan>();
        auto inner = open_io(IoKind::threads);
        ASSERT_TRUE(inner);
        const auto faulty = make_fault_io(*std::move(inner), plan);
        plan->fail_once(n, Errc::io);
        static_cast<void>(refreshed(*faulty, *database, trust));  // a failure says so
        const std::string failed = plan->first_failed();
        ASSERT_TRUE(refreshed(store.io(), *database, Trust::notes));
        EXPECT_EQ(dump(*database), all) << failed << (is_known ? ", known before" : "");
        if (failed.empty()) break;
      }
    }
  }
}

TEST(Refresh, AManifestThatWasDamagedInItsPlaceIsReadAgain) {
  StoreBuilder store;
  const std::string path = store.put("a", 1, 1);
  store.put("a", 2, 2);
  open_catalog(store);
  let_clocks_move();
  fs::resize_file(path + "/manifest.json", 10);
  Catalog catalog = open_catalog(store);
  EXPECT_EQ(catalog.refreshed().read, 1U);
  EXPECT_EQ(summarise_runs(catalog.database())->at(0).damaged, 1U);
  EXPECT_EQ(dump(catalog.database()), scanned_text(store));
  EXPECT_EQ(open_catalog(store).refreshed().read, 1U);  // its copy is right: it may be mended at any time
}

TEST(Refresh, OfManyOnlyTheNewestAreLookedAtUnlessNothingMayBeUnseen) {
  StoreBuilder store;
  std::string oldest;
  std::string newest;
  for (std::uint64_t step = 1; step <= 300; ++step) {
    newest = store.put("a", step, step);
    if (step == 1) oldest = newest;
  }
  open_catalog(store);
  let_clocks_move();
  fs::resize_file(newest + "/manifest.json", 10);
  EXPECT_EQ(open_catalog(store).refreshed().read, 1U);
  fs::resize_file(oldest + "/manifest.json", 10);
  EXPECT_EQ(open_catalog(store).refreshed().read, 1U);  // the newest, which may be mended at any time
  EXPECT_EQ(open_catalog(store, Trust::nothing_unseen).refreshed().read, 2U);
}

TEST(Refresh, AnotherCheckpointUnderTheSameNameIsRead) {
  StoreBuilder store;
  const std::string path = store.put("a", 1, 1);
  for (std::uint64_t step = 2; step <= 300; ++step) store.put("a", step, step);
  open_catalog(store);
  let_clocks_move();
  fs::rename(path, store.path() + "/aside");
  store.put("a", 1, 1, {.weights_bytes = 4096});
  Catalog catalog = open_catalog(store);
  EXPECT_EQ(dump(catalog.database()), scanned_text(store));
}

TEST(Refresh, ANoteTellsOfASaveInARunThatKeptItsTime) {
  StoreBuilder store;
  store.put("prod/a", 1, 1);
  open_catalog(store);
  const fs::path run = store.path() + "/prod/a";
  const auto before = fs::last_write_time(run);
  store.put("prod/a", 2, 2);
  fs::last_write_time(run, before);  // as a cache of a network file system shows it
  EXPECT_EQ(open_catalog(store).refreshed().read, 0U);
  drop_note(store.io(), run.string(), "step-000000002.g2", "saved");
  EXPECT_EQ(open_catalog(store).refreshed().read, 1U);
}

TEST(Refresh, NotesWhoseWriterWasKilledCountAndGoAndStandInNobodysWay) {
  StoreBuilder store;
  const std::string path = store.put("a", 1, 1);
  open_catalog(store);
  const std::string inbox = store.path() + "/.ckpt/inbox";
  const auto say = [&](const std::string& tag) {
    ASSERT_TRUE(write_mark(store.io(), path + "/marks", {.kind = Mark::Kind::tag, .name = tag}));
    drop_note(store.io(), store.path() + "/a", "step-000000001.g1", "tag");
  };
  say("t");
  const std::string note = read_inbox(store.io(), store.path()).at(0).file;
  fs::rename(note, note + ".tmp");
  EXPECT_EQ(open_catalog(store).refreshed().read, 1U);
  EXPECT_TRUE(fs::is_empty(inbox));

  test::write_file(note + ".tmp", "{\"run\":");  // half of one
  say("u");
  EXPECT_TRUE(fs::exists(note));
  EXPECT_FALSE(fs::exists(note + ".tmp"));
  EXPECT_EQ(open_catalog(store).refreshed().read, 1U);

  test::write_file(note + ".tmp", "{\"run\":");
  open_catalog(store);
  EXPECT_TRUE(fs::is_empty(inbox));
}

TEST(Refresh, NotesCannotNameWhatLiesElsewhere) {
  StoreBuilder store;
  store.put("a", 1, 1);
  open_catalog(store);
  const std::string inbox = store.path() + "/.ckpt/inbox";
  fs::create_directories(inbox);
  test::write_file(inbox + "/1.json", R"({"run":"2e2e","name":"73746570"})");
  test::write_file(inbox + "/2.json", "not JSON");
  test::write_file(inbox + "/3.json", R"({"run":"61","name":"2f657463"})");
  Catalog catalog = open_catalog(store);
  EXPECT_EQ(dump(catalog.database()), scanned_text(store));
  EXPECT_TRUE(read_inbox(store.io(), store.path()).empty());
}

/// What may happen to a store, one step at a time.
class History {
 public:
  explicit History(std::uint64_t seed) : random_(seed) {}

  void step(StoreBuilder& store) {
    const std::string run = kRuns[random_() % kRuns.size()];
    switch (random_() % 10) {
      case 0:
      case 1:
        ++generation_;
        store.put(run, random_() % 50, generation_, {.series = random_() % 3, .optim_bytes = random_() % 2 * 8192});
        break;
      case 2: {
        const std::string name = "checkpoint-" + std::to_string(random_() % 5);
        fs::remove_all(store.path() + "/" + run + "/" + name);
        store.put_foreign(run, name, std::string(random_() % 50, 'x'));
        break;
      }
      case 3:
        if (const auto path = any(store)) fs::remove_all(*path);
        break;
      case 4:
        if (const auto path = any(store)) mark(store, *path);
        break;
      case 5:
        if (const auto path = any(store)) {
          const std::string whole = fs::path(*path).parent_path().string();
          if (whole != store.path() && random_() % 2 == 0) fs::remove_all(whole);
        }
        break;
      case 6:
        fs::create_directories(store.path() + "/" + run + "/checkpoint-7");  // to be filled later, or never
        break;
      case 7:  // a damaged manifest
        if (const auto path = any(store); path && fs::exists(*path + "/sums.bin"))
          fs::resize_file(*path + "/manifest.json", random_() % 2 * 100);
        break;
      case 8:  // another checkpoint in its place
        if (const auto path = any(store); path && fs::exists(*path + "/sums.bin")) {
          const auto name = CheckpointName::parse(fs::path(*path).filename().string());
          const std::string where = fs::relative(fs::path(*path).parent_path(), store.path()).string();
          fs::remove_all(*path);
          store.put(where, name->step, name->generation, {.weights_bytes = 4096 * (1 + random_() % 5)});
        }
        break;
      default:
        if (fs::is_directory(store.path() + "/" + run))
          test::write_file(store.path() + "/" + run + "/latest", "checkpoint-" + std::to_string(random_() % 5));
    }
  }

 private:
  std::optional<std::string> any(StoreBuilder& store) {
    const auto scanned = scan(store.io(), store.path(), kOther);
    if (!scanned || scanned->entries.empty()) return std::nullopt;
    return scanned->entries[random_() % scanned->entries.size()].path(store.path());
  }

  void mark(StoreBuilder& store, const std::string& path) {
    const bool foreign = !fs::exists(path + "/sums.bin");
    const Mark::Kind kind = static_cast<Mark::Kind>(random_() % 7);
    const std::string name = kind == Mark::Kind::verified ? "" : std::string(1, static_cast<char>('a' + random_() % 3));
    const std::string marks = marks_path(path, foreign);
    if (random_() % 3 == 0) {
      EXPECT_TRUE(remove_mark(store.io(), marks, kind, name).has_value() || !fs::exists(marks));
    } else {
      EXPECT_TRUE(
          write_mark(store.io(), marks, {.kind = kind, .name = name, .value = static_cast<double>(random_() % 2)}));
    }
    drop_note(store.io(), fs::path(path).parent_path().string(), fs::path(path).filename().string(),
              std::to_string(random_()));
  }

  const std::vector<std::string> kRuns{"a", "b", "prod/c", "prod/d", "."};
  std::mt19937_64 random_;
  std::uint64_t generation_ = 0;
};

TEST(Refresh, AnyHistoryLeavesTheIndexThatARebuildMakes) {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    StoreBuilder store;
    History history(seed);
    for (int round = 0; round < 6; ++round) {
      for (int i = 0; i < 4; ++i) history.step(store);
      Catalog catalog = open_catalog(store);
      ASSERT_TRUE(catalog.is_indexed());
      ASSERT_TRUE(catalog.warnings().empty());
      ASSERT_EQ(dump(catalog.database()), scanned_text(store)) << "seed " << seed << ", round " << round;
      let_clocks_move();
    }
  }
}

}  // namespace
}  // namespace ckpt::catalog
