#include "catalog/scan/scan.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "catalog/scan/utc.hpp"
#include "store_builder.hpp"
#include "support/fault_io.hpp"

namespace ckpt::catalog {
namespace {

using test::StoreBuilder;

/// Knows what StoreBuilder::put_foreign makes.
Recognised recognise_other(Io& io, const std::string& directory) {
  if (io.stat(directory + "/unfinished")) return {.unfinished = true};
  return {.format = io.stat(directory + "/other.bin") ? "other" : ""};
}

const OtherTools kOther{.names = test::other_names(), .recognise = recognise_other};

std::vector<Entry> scan_all(StoreBuilder& store) {
  auto scanned = scan(store.io(), store.path(), kOther);
  EXPECT_TRUE(scanned) << scanned.error().message;
  if (!scanned) return {};
  EXPECT_TRUE(scanned->warnings.empty());
  return std::move(scanned->entries);
}

std::vector<std::string> names_of(const std::vector<Entry>& entries) {
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.push_back(entry.checkpoint.run + " " + entry.name);
  return names;
}

TEST(Scan, TellsWhatManifestTableAndMarksSay) {
  StoreBuilder store;
  const std::string path = store.put("demo", 1000, 7,
                                     {.series = 2,
                                      .series_from = 900,
                                      .weights_bytes = 8192,
                                      .optim_bytes = 20000,
                                      .created = "2026-01-02T03:04:05.678000000Z",
                                      .parent = std::string(32, 'a'),
                                      .user = {{"metric.loss", "1.75"}, {"note", "x"}}});
  const std::string marks = marks_path(path, false);
  ASSERT_TRUE(write_mark(store.io(), marks, {.kind = Mark::Kind::pin, .name = "p", .text = "why", .owner = "me"}));
  ASSERT_TRUE(write_mark(store.io(), marks, {.kind = Mark::Kind::tag, .name = "good"}));
  ASSERT_TRUE(write_mark(store.io(), marks, {.kind = Mark::Kind::metric, .name = "acc", .value = 0.5}));
  ASSERT_TRUE(
      write_mark(store.io(), marks, {.kind = Mark::Kind::verified, .at = parse_time("2026-02-01"), .value = 1}));
  const auto entries = scan_all(store);
  ASSERT_EQ(entries.size(), 1U);
  const Entry& entry = entries[0];
  const Checkpoint& checkpoint = entry.checkpoint;
  EXPECT_EQ(entry.path(store.path()), path);
  EXPECT_EQ(checkpoint.run, "demo");
  EXPECT_EQ(checkpoint.id, hash128(std::string_view("demo/step-000001000.g7")).hex());
  EXPECT_EQ(checkpoint.step, 1000U);
  EXPECT_EQ(checkpoint.generation, 7U);
  EXPECT_EQ(checkpoint.series, 2U);
  EXPECT_EQ(checkpoint.series_from, 900U);
  EXPECT_EQ(checkpoint.created, parse_time("2026-01-02T03:04:05.678Z"));
  EXPECT_EQ(checkpoint.state, State::verified);
  EXPECT_EQ(entry.last(Mark::Kind::verified), parse_time("2026-02-01"));
  EXPECT_EQ(checkpoint.optimizer_bytes, 20000U);
  EXPECT_EQ(entry.class_bytes[0], 8192U);
  EXPECT_EQ(checkpoint.bytes, 28192U + std::filesystem::file_size(path + "/sums.bin") +
                                  2 * std::filesystem::file_size(path + "/manifest.json"));
  ASSERT_NE(find_metric(checkpoint, "loss"), nullptr);
  EXPECT_EQ(*find_metric(checkpoint, "loss"), 1.75);
  EXPECT_EQ(*find_metric(checkpoint, "acc"), 0.5);
  EXPECT_EQ(checkpoint.tags, std::vector<std::string>{"good"});
  ASSERT_EQ(checkpoint.pins.size(), 1U);
  EXPECT_EQ(checkpoint.pins[0].owner, "me");
  EXPECT_EQ(entry.parent, std::string(32, 'a'));
  EXPECT_EQ(entry.format, "ckpt");
  EXPECT_EQ(entry.layout, "whole");
}

TEST(Scan, FindsRunsAtAnyDepthAndPassesOverWhatIsNoCheckpoint) {
  StoreBuilder store;
  store.put("b", 2, 1);
  store.put("b", 10, 2);
  store.put("prod/llama", 5, 1);
  store.put(".", 3, 1);
  std::filesystem::create_directories(store.path() + "/b/step-000000003.partial-0123");
  std::filesystem::create_directories(store.path() + "/b/step-3.g1");  // not as we write it
  std::filesystem::create_directories(store.path() + "/.ckpt/trash/b/step-000000001.g1");
  std::filesystem::create_directories(store.path() + "/a/b/c/d/e/f");
  std::filesystem::create_directory_symlink(store.path(), store.path() + "/loop");
  EXPECT_EQ(names_of(scan_all(store)),
            (std::vector<std::string>{". step-000000003.g1", "b step-000000002.g1", "b step-000000010.g2",
                                      "prod/llama step-000000005.g1"}));
}

TEST(Scan, KeepsNamesThatNoTextShouldHold) {
  StoreBuilder store;
  const std::string run = "line\nbreak \xff'; DROP TABLE runs; --";
  std::filesystem::create_directories(store.path() + "/" + run);
  std::filesystem::rename(store.put("plain", 1, 1), store.path() + "/" + run + "/step-000000001.g1");
  const auto entries = scan_all(store);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].checkpoint.run, run);
  EXPECT_EQ(entries[0].checkpoint.state, State::committed);
}

TEST(Scan, TellsDamageFromWhatOnlyThisReleaseCannotRead) {
  StoreBuilder store;
  const std::string bad_manifest = store.put("r", 1, 1);
  test::write_file(bad_manifest + "/manifest.json", "{");
  std::filesystem::remove_all(bad_manifest + "/index");
  std::filesystem::remove_all(store.put("r", 2, 2) + "/index");
  std::filesystem::remove(store.path() + "/r/step-000000002.g2/manifest.json");
  std::filesystem::remove(store.put("r", 3, 3) + "/sums.bin");
  const std::string swapped = store.put("r", 4, 4);
  std::filesystem::copy_file(store.put("r", 5, 5) + "/sums.bin", swapped + "/sums.bin",
                             std::filesystem::copy_options::overwrite_existing);
  const std::string doubtful = store.put("r", 6, 6);
  test::write_file(doubtful + "/marks/pin-0.json", "not JSON");
  const std::string damaged = store.put("r", 7, 7);
  ASSERT_TRUE(write_mark(store.io(), damaged + "/marks",
                         {.kind = Mark::Kind::verified, .text = "leaf 3 of shards/x", .value = 0}));
  const auto entries = scan_all(store);
  ASSERT_EQ(entries.size(), 7U);
  for (const std::size_t bad : {0U, 1U, 2U, 3U, 6U}) {
    EXPECT_EQ(entries[bad].checkpoint.state, State::corrupt) << bad;
    EXPECT_NE(entries[bad].reason, "") << bad;
  }
  EXPECT_EQ(entries[4].checkpoint.state, State::committed);
  EXPECT_EQ(entries[5].checkpoint.state, State::committed);
  EXPECT_TRUE(entries[5].checkpoint.marks_unreadable);
}

TEST(Scan, TellsWhatRepairMends) {
  StoreBuilder store;
  test::write_file(store.put("r", 1, 1) + "/manifest.json", "{");
  std::filesystem::remove(store.put("r", 2, 2) + "/manifest.json");
  // A lost second copy is found by whoever verifies.
  const Mark damage{.kind = Mark::Kind::verified, .text = "index/manifest.json is missing", .value = 0};
  const std::string copy_lost = store.put("r", 3, 3);
  std::filesystem::remove(copy_lost + "/index/manifest.json");
  ASSERT_TRUE(write_mark(store.io(), copy_lost + "/marks", damage));
  const std::string no_table = store.put("r", 4, 4);
  std::filesystem::remove(no_table + "/manifest.json");
  std::filesystem::remove(no_table + "/sums.bin");
  const auto entries = scan_all(store);
  ASSERT_EQ(entries.size(), 4U);
  for (const std::size_t i : {0U, 1U, 2U}) {
    EXPECT_EQ(entries[i].checkpoint.state, State::repairable) << i;
    EXPECT_EQ(entries[i].checkpoint.id.size(), 32U) << i;
    EXPECT_GT(entries[i].checkpoint.bytes, 20000U) << i;
  }
  EXPECT_EQ(entries[3].checkpoint.state, State::corrupt);
}

TEST(Scan, TrackersNameOursTooWhateverBlanksStandAroundTheName) {
  StoreBuilder store;
  store.put("r", 1, 1);
  store.put("r", 2, 2);
  test::write_file(store.path() + "/r/latest", " \n\t step-000000001.g1/ \r\nstep-000000002.g2\n");
  test::write_file(store.path() + "/r/latest_checkpointed_iteration.txt", " 2 ");
  const auto entries = scan_all(store);
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].checkpoint.trackers, std::vector<std::string>{"latest"});
  EXPECT_EQ(entries[1].checkpoint.trackers, std::vector<std::string>{"latest_checkpointed_iteration.txt"});
}

TEST(Scan, CataloguesOtherToolsCheckpointsByTheStepInTheirNames) {
  StoreBuilder store;
  store.put_foreign("ds", "global_step100");
  store.put_foreign("ds", "global_step9", "123");
  test::write_file(store.path() + "/ds/latest", "global_step9\n");
  test::write_file(store.path() + "/ds/other.bin", "the run's own directory is recognised too");
  store.put_foreign("meg", "iter_0000200");
  test::write_file(store.path() + "/meg/latest_checkpointed_iteration.txt", "200");
  store.put_foreign("final", "");  // no step: not one of a series
  store.put_foreign("hf", "checkpoint-500");
  test::write_file(store.put_foreign("hf", "checkpoint-600") + "/unfinished", "");
  const auto entries = scan_all(store);
  ASSERT_EQ(names_of(entries), (std::vector<std::string>{"ds global_step100", "ds global_step9", "hf checkpoint-500",
                                                         "meg iter_0000200"}));
  EXPECT_EQ(entries[0].checkpoint.step, 100U);
  EXPECT_EQ(entries[1].checkpoint.bytes, 3U);
  EXPECT_TRUE(entries[0].checkpoint.trackers.empty());
  EXPECT_EQ(entries[1].checkpoint.trackers, std::vector<std::string>{"latest"});
  EXPECT_EQ(entries[3].checkpoint.trackers, std::vector<std::string>{"latest_checkpointed_iteration.txt"});
  EXPECT_EQ(entries[0].checkpoint.generation, 0U);
  EXPECT_EQ(entries[0].format, "other");
  EXPECT_NE(entries[0].checkpoint.id, entries[1].checkpoint.id);
}

TEST(Scan, SaysSoWhereThereIsNoStore) {
  StoreBuilder store;
  const auto scanned = scan(store.io(), store.path() + "/none", kOther);
  ASSERT_FALSE(scanned);
  EXPECT_EQ(scanned.error().code, Errc::not_found);
}

TEST(Scan, NothingOfAnotherToolsCheckpointIsLeftOutInSilence) {
  StoreBuilder store;
  const std::string path = store.put_foreign("ds", "global_step3");
  std::filesystem::create_directories(path + "/below");
  test::write_file(path + "/below/more.bin", "0123");
  const EntryPlace place{.run = "ds", .name = "global_step3", .foreign = true, .format = "other", .step = 3};
  for (std::uint64_t n = 0;; ++n) {
    const auto plan = std::make_shared<FaultPlan>();
    auto inner = open_io(IoKind::threads);
    ASSERT_TRUE(inner);
    const auto faulty = make_fault_io(*std::move(inner), plan);
    plan->fail_once(n, Errc::io);
    const auto entry = read_entry(*faulty, store.path(), place);
    const std::string failed = plan->first_failed();
    ASSERT_TRUE(entry) << failed;
    const Checkpoint& one = entry->checkpoint;
    if (one.state != State::unreadable) {
      EXPECT_EQ(one.bytes, 14U) << failed;
    }
    if (failed.empty()) break;
  }
}

}  // namespace
}  // namespace ckpt::catalog
