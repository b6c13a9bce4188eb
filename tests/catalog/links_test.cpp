// Which checkpoints links in a store lead to.
#include "catalog/scan/links.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "catalog/index/refresh.hpp"
#include "catalog/index/rows.hpp"
#include "engine/io/forwarding_io.hpp"
#include "store_builder.hpp"

namespace ckpt::catalog {
namespace {

namespace fs = std::filesystem;

Recognised recognise_linked(Io& io, const std::string& directory) {
  return {.format = io.stat(directory + "/other.bin") ? "other" : ""};
}

const OtherTools kLinked{.names = test::other_names(), .recognise = recognise_linked};
const OtherTools kUnknown{.names = test::other_names()};

/// Cannot list one directory.
class RefusingIo final : public ForwardingIo {
 public:
  RefusingIo(Io& inner, std::string directory) : ForwardingIo(inner), directory_(std::move(directory)) {}
  Result<std::unique_ptr<Io>> new_instance() const override { return inner().new_instance(); }
  Result<std::vector<DirEntry>> list(const std::string& path) override {
    if (path == directory_) return fail(Errc::io, path + ": Permission denied");
    return ForwardingIo::list(path);
  }

 private:
  std::string directory_;
};

TEST(Links, NameWhatTheyLeadToAndReferToWhatTheyLeadInto) {
  test::StoreBuilder store;
  const std::string& top = store.path();
  store.put("ours", 1, 1);
  store.put("ours", 2, 2);
  store.put_foreign("hf", "checkpoint-10");
  store.put_foreign("hf", "checkpoint-20");
  store.put_foreign("hf", "checkpoint-30");
  fs::create_directory_symlink("step-000000001.g1", top + "/ours/best");
  fs::create_directories(top + "/exports");
  fs::create_symlink(top + "/ours/step-000000002.g2/sums.bin", top + "/exports/sums");
  fs::create_directories(top + "/hf/checkpoint-30/deep");
  fs::create_symlink("../../checkpoint-10/other.bin", top + "/hf/checkpoint-30/deep/weights.bin");
  fs::create_symlink("other.bin", top + "/hf/checkpoint-20/again.bin");  // in itself
  fs::create_symlink("nowhere", top + "/hf/dangling");
  fs::create_symlink("/", top + "/hf/outside");
  auto database = Database::in_memory();
  ASSERT_TRUE(database) << database.error().message;
  const Time now = Time{} + std::chrono::hours(24 * 366 * 60);
  using Words = std::vector<std::string>;
  for (const Trust trust : {Trust::notes, Trust::notes, Trust::nothing_unseen, Trust::nothing}) {
    const auto refreshed = refresh(store.io(), top, *database, kLinked, trust, now);
    ASSERT_TRUE(refreshed) << refreshed.error().message;
    auto entries = select_entries(*database, {});
    ASSERT_TRUE(entries);
    ASSERT_EQ(entries->size(), 5U);
    note_links(top, refreshed->links, *entries);
    for (const Entry& entry : *entries) {
      const Words trackers = entry.name == "step-000000001.g1"   ? Words{"best"}
                             : entry.name == "step-000000002.g2" ? Words{"exports/sums"}
                                                                 : Words{};
      EXPECT_EQ(entry.checkpoint.trackers, trackers) << entry.name;
      EXPECT_EQ(entry.checkpoint.references, entry.name == "checkpoint-10" ? Words{"hf/checkpoint-30"} : Words{})
          << entry.name;
    }
  }
}

TEST(Links, WhatNobodyCanReadNamesAllThatItMayName) {
  test::StoreBuilder store;
  const std::string& top = store.path();
  store.put("a", 1, 1);
  store.put("b", 1, 1);
  store.put("b/deep", 1, 1);
  const Time now = Time{} + std::chrono::hours(24 * 366 * 60);
  using Words = std::vector<std::string>;
  const auto named = [&](Io& io, Database& database) {
    std::map<std::string, Words> out;
    const auto refreshed = refresh(io, top, database, kUnknown, Trust::notes, now);
    EXPECT_TRUE(refreshed);
    auto entries = select_entries(database, {});
    EXPECT_TRUE(entries);
    if (!refreshed || !entries) return out;
    note_links(top, refreshed->links, *entries);
    for (const Entry& entry : *entries) out[entry.checkpoint.run] = entry.checkpoint.trackers;
    return out;
  };
  auto database = Database::in_memory();
  ASSERT_TRUE(database);
  std::ofstream(top + "/a/latest") << std::string(5000, 'x');  // no tool writes that
  for (int n = 0; n < 2; ++n) {
    EXPECT_EQ(named(store.io(), *database),
              (std::map<std::string, Words>{{"a", {"latest (cannot be read)"}}, {"b", {}}, {"b/deep", {}}}));
  }
  fs::remove(top + "/a/latest");
  fs::create_directory(top + "/b/links");
  RefusingIo refusing(store.io(), top + "/b/links");
  for (int n = 0; n < 2; ++n) {
    EXPECT_EQ(named(refusing, *database),
              (std::map<std::string, Words>{{"a", {}}, {"b", {"links (cannot be read)"}}, {"b/deep", {}}}));
  }
  fs::create_symlink(std::string(300, 'x'), top + "/b/links/far");  // ENAMETOOLONG
  EXPECT_EQ(named(store.io(), *database),
            (std::map<std::string, Words>{{"a", {"b/links/far (cannot be followed)"}},
                                          {"b", {"b/links/far (cannot be followed)"}},
                                          {"b/deep", {"b/links/far (cannot be followed)"}}}));
}

TEST(Links, ATrackerThatHoldsAPathNamesWhatItLeadsTo) {
  test::StoreBuilder store;
  const std::string& top = store.path();
  const std::string one = store.put("a", 1, 1);
  store.put("b", 2, 2);
  auto database = Database::in_memory();
  ASSERT_TRUE(database);
  const Time now = Time{} + std::chrono::hours(24 * 366 * 60);
  for (const std::string& text : {one, one + "/\n", std::string("../a/step-000000001.g1"), one + "/shards"}) {
    std::ofstream(top + "/b/latest") << text;
    const auto refreshed = refresh(store.io(), top, *database, kUnknown, Trust::notes, now);
    ASSERT_TRUE(refreshed) << refreshed.error().message;
    auto entries = select_entries(*database, {});
    ASSERT_TRUE(entries);
    note_links(top, refreshed->links, *entries);
    for (const Entry& entry : *entries) {
      const bool there =
          entry.checkpoint.run == "a" && (text.find("shards") == text.npos || fs::exists(one + "/shards"));
      EXPECT_EQ(entry.checkpoint.trackers.size(), there ? 1U : 0U) << text << " " << entry.checkpoint.run;
    }
  }
}

TEST(Refresh, AnotherToolsCheckpointThatWasChangedInItsPlaceIsReadAgain) {
  test::StoreBuilder store;
  const std::string one = store.put_foreign("hf", "checkpoint-10");
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(48);
  for (const char* part : {"/other.bin", ""}) fs::last_write_time(one + part, old);
  auto database = Database::in_memory();
  ASSERT_TRUE(database);
  const Time now = Time{} + std::chrono::hours(24 * 366 * 60);
  ASSERT_TRUE(refresh(store.io(), store.path(), *database, kLinked, Trust::notes, now));
  {
    // As a trainer does that writes its file anew: the directory stays as it is.
    std::ofstream file(one + "/other.bin", std::ios::app);
    file << "and more";
  }
  fs::last_write_time(one + "/other.bin", old + std::chrono::hours(1));
  ASSERT_TRUE(refresh(store.io(), store.path(), *database, kLinked, Trust::notes, now));
  const auto entries = select_entries(*database, {});
  ASSERT_TRUE(entries);
  ASSERT_EQ(entries->size(), 1U);
  EXPECT_EQ(entries->front().checkpoint.bytes, 18U);
}

TEST(Links, AFolderOfAnotherToolsCheckpointThatCannotBeReadMayHoldAny) {
  test::StoreBuilder store;
  store.put_foreign("hf", "checkpoint-10");
  fs::create_directories(store.put_foreign("hf", "checkpoint-30") + "/deep");
  RefusingIo io(store.io(), store.path() + "/hf/checkpoint-30/deep");
  auto database = Database::in_memory();
  ASSERT_TRUE(database) << database.error().message;
  const auto refreshed = refresh(io, store.path(), *database, kLinked, Trust::notes, Time{});
  ASSERT_TRUE(refreshed) << refreshed.error().message;
  auto entries = select_entries(*database, {});
  ASSERT_TRUE(entries);
  ASSERT_EQ(entries->size(), 2U);
  note_links(store.path(), refreshed->links, *entries);
  for (const Entry& entry : *entries) EXPECT_FALSE(entry.checkpoint.trackers.empty()) << entry.name;
}

}  // namespace
}  // namespace ckpt::catalog
