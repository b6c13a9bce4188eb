#include "catalog/index/catalog.hpp"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "catalog/index/names.hpp"
#include "engine/store/inbox.hpp"
#include "store_builder.hpp"

namespace ckpt::catalog {
namespace {

using test::StoreBuilder;

Recognised recognise_none(Io&, const std::string&) {
  return {};
}
const OtherTools kOther{.names = test::other_names(), .recognise = recognise_none};
const Time kLater =
    Time(std::chrono::floor<Duration>(std::chrono::system_clock::now().time_since_epoch())) + std::chrono::hours(24);

Catalog open_catalog(StoreBuilder& store) {
  auto catalog = Catalog::open(store.io(), store.path(),
                               {.tools = kOther, .patience = std::chrono::milliseconds(20), .now = kLater});
  EXPECT_TRUE(catalog) << catalog.error().message;
  return *std::move(catalog);
}

std::vector<std::string> names_in(Catalog& catalog) {
  std::vector<std::string> names;
  const auto entries = select_entries(catalog.database(), {});
  EXPECT_TRUE(entries);
  for (const Entry& entry : *entries) names.push_back(entry.checkpoint.run + "@" + entry.name);
  return names;
}

const std::vector<std::string> kAll{"a@step-000000010.g2", "a@step-000000009.g1", "b@step-000000001.g1"};

class CatalogTest : public testing::Test {
 protected:
  CatalogTest() {
    store_.put("a", 9, 1);
    store_.put("a", 10, 2);
    store_.put("b", 1, 1);
  }
  void expect_scanned_with(const std::string& reason) {
    Catalog catalog = open_catalog(store_);
    EXPECT_FALSE(catalog.is_indexed());
    ASSERT_EQ(catalog.warnings().size(), 1U);
    EXPECT_NE(catalog.warnings()[0].find(reason), std::string::npos) << catalog.warnings()[0];
    EXPECT_NE(catalog.warnings()[0].find("the directories were scanned"), std::string::npos);
    EXPECT_EQ(names_in(catalog), kAll);
  }
  std::string file() const { return catalog_file(store_.path()); }

  StoreBuilder store_;
};

TEST_F(CatalogTest, IsMadeAnewFromTheDiskAlone) {
  {
    Catalog catalog = open_catalog(store_);
    EXPECT_TRUE(catalog.is_indexed());
    EXPECT_TRUE(catalog.warnings().empty());
    EXPECT_EQ(names_in(catalog), kAll);
  }
  auto rebuilt = Catalog::open(store_.io(), store_.path(), {.tools = kOther, .trust = Trust::nothing, .now = kLater});
  ASSERT_TRUE(rebuilt);
  EXPECT_EQ(rebuilt->refreshed().read, 3U);
  EXPECT_EQ(names_in(*rebuilt), kAll);
  EXPECT_TRUE(rebuilt->database().check());
}

TEST_F(CatalogTest, ARowAndItsMarksAreOfOneMomentWhileAnotherProcessStoresThem) {
  const std::string pinned = store_.put("b", 2, 2);
  ASSERT_TRUE(write_mark(store_.io(), pinned + "/marks", {.kind = Mark::Kind::pin, .name = "cited"}));
  Catalog catalog = open_catalog(store_);
  ASSERT_TRUE(catalog.is_indexed());
  const auto known = select_entries(catalog.database(), {.run = "b", .name = "step-000000002.g2"});
  ASSERT_TRUE(known && known->size() == 1 && known->front().checkpoint.pins.size() == 1U);
  auto other = Database::open(file(), {});
  ASSERT_TRUE(other) << other.error().message;

  bool stored = false;
  const auto while_it_is_stored = [&](const Entry& entry) {
    const bool is_time = entry.checkpoint.run == "a" && !std::exchange(stored, true);
    return !is_time || store_entry(*other, known->front()).has_value();
  };
  const auto seen = select_entries(catalog.database(), {.passes = while_it_is_stored});
  ASSERT_TRUE(seen) << seen.error().message;
  EXPECT_TRUE(stored);
  const auto entry = std::ranges::find(*seen, "step-000000002.g2", &Entry::name);
  ASSERT_NE(entry, seen->end());
  EXPECT_EQ(entry->checkpoint.pins.size(), 1U);
}

TEST_F(CatalogTest, ALostOneIsMadeAgainWithoutAWord) {
  names_in(*std::make_unique<Catalog>(open_catalog(store_)));
  std::filesystem::remove_all(store_.path() + "/.ckpt");
  Catalog catalog = open_catalog(store_);
  EXPECT_TRUE(catalog.is_indexed());
  EXPECT_TRUE(catalog.warnings().empty());
  EXPECT_EQ(names_in(catalog), kAll);
}

TEST_F(CatalogTest, ADamagedOneIsPutAsideAndMadeAnew) {
  { open_catalog(store_); }
  test::write_file(file(), std::string(8192, 'x'));
  {
    Catalog catalog = open_catalog(store_);
    EXPECT_TRUE(catalog.is_indexed());
    ASSERT_EQ(catalog.warnings().size(), 1U);
    EXPECT_NE(catalog.warnings()[0].find("moved aside"), std::string::npos);
    EXPECT_EQ(names_in(catalog), kAll);
  }
  EXPECT_TRUE(std::filesystem::exists(file() + ".damaged"));
  EXPECT_TRUE(open_catalog(store_).warnings().empty());
}

TEST_F(CatalogTest, ALockedOneCostsAWarning) {
  { open_catalog(store_); }
  store_.put("b", 1, 1);
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(file().c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  std::filesystem::remove_all(store_.path() + "/c");
  store_.put("a", 11, 3);
  {
    Catalog catalog = open_catalog(store_);
    EXPECT_FALSE(catalog.is_indexed());
    EXPECT_EQ(names_in(catalog).size(), 4U) << "what came since is told all the same";
  }
  sqlite3_close(other);
  EXPECT_TRUE(open_catalog(store_).is_indexed());
}

TEST_F(CatalogTest, ANoteWaitsUntilTheIndexItselfHasTakenIt) {
  { open_catalog(store_); }
  const std::string path = store_.path() + "/b/step-000000001.g1";
  ASSERT_TRUE(write_mark(store_.io(), path + "/marks", {.kind = Mark::Kind::tag, .name = "t"}));
  drop_note(store_.io(), store_.path() + "/b", "step-000000001.g1", "t");
  const auto tagged = [](Catalog& catalog) {
    const auto entries = select_entries(catalog.database(), {.tag = "t"});
    return entries ? entries->size() : 0;
  };
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(file().c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  {
    Catalog catalog = open_catalog(store_);
    EXPECT_FALSE(catalog.is_indexed());
    EXPECT_EQ(tagged(catalog), 1U);
  }
  sqlite3_close(other);
  Catalog catalog = open_catalog(store_);
  EXPECT_TRUE(catalog.is_indexed());
  EXPECT_EQ(tagged(catalog), 1U) << "the scan in memory had taken the note away";
}

TEST_F(CatalogTest, OneOfALaterReleaseIsLeftAlone) {
  { open_catalog(store_); }
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(file().c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "PRAGMA user_version=999", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(other);
  expect_scanned_with("version 999");
  expect_scanned_with("version 999");
}

TEST_F(CatalogTest, WhereItCannotBeMadeTheDiskIsScanned) {
  test::write_file(store_.path() + "/.ckpt", "a file in its place");
  Catalog catalog = open_catalog(store_);
  EXPECT_FALSE(catalog.is_indexed());
  EXPECT_EQ(catalog.warnings().size(), 1U);
  EXPECT_EQ(names_in(catalog), kAll);
}

TEST_F(CatalogTest, WithoutAStoreThereIsNoAnswer) {
  const auto catalog = Catalog::open(store_.io(), store_.path() + "/none", {.tools = kOther});
  ASSERT_FALSE(catalog);
  EXPECT_EQ(catalog.error().code, Errc::not_found);
}

// --- names
// ------------------------------------------------------------------------------------------------------------

class NamesTest : public testing::Test {
 protected:
  /// The name of what is found, or its error's code.
  std::string found(const std::string& name) {
    Catalog catalog = open_catalog(store_);
    const auto entry = find_checkpoint(catalog.database(), name);
    if (entry) return entry->name;
    message_ = entry.error().message + " / " + entry.error().hint;
    return std::to_string(static_cast<int>(entry.error().code));
  }
  void mark(const std::string& path, const Mark& mark) { ASSERT_TRUE(write_mark(store_.io(), path + "/marks", mark)); }

  StoreBuilder store_;
  std::string message_;
};

TEST_F(NamesTest, StepsAreNumbersAndTheNewestSaveOfAStepIsMeant) {
  store_.put("a", 9, 1);
  store_.put("a", 10, 2);
  store_.put("a", 9, 3);
  EXPECT_EQ(found("a@9"), "step-000000009.g3");
  EXPECT_EQ(found("a@0009"), "step-000000009.g3");
  EXPECT_EQ(found("@10"), "step-000000010.g2") << "the only run";
  EXPECT_EQ(found("a@step-000000009.g1"), "step-000000009.g1");
  EXPECT_EQ(found("a@9.g1"), "step-000000009.g1");
  EXPECT_EQ(found("a@9.g2"), "1000");
  EXPECT_NE(message_.find("no generation 2 of step 9"), std::string::npos) << message_;
  EXPECT_EQ(found("a@11"), "1000");
  EXPECT_NE(message_.find("nearest: 10"), std::string::npos) << message_;
  EXPECT_EQ(found("b@9"), "1000");
  store_.put("b", 1, 1);
  EXPECT_EQ(found("@10"), "200") << "which run?";
}

TEST_F(NamesTest, ShortNamesHaveAGenerationOnlyWhereANewerSaveOfTheStepExists) {
  store_.put("a", 9, 1);
  store_.put("a", 10, 2);
  store_.put("a", 9, 3);
  store_.put("b", 9, 1);
  Catalog catalog = open_catalog(store_);
  const auto entries = select_entries(catalog.database(), {});
  ASSERT_TRUE(entries);
  const ShortNames names(*entries);
  std::set<std::string> all;
  for (const Entry& entry : *entries) {
    all.insert(names.of(entry));
    EXPECT_EQ(found(names.of(entry)), entry.name) << names.of(entry);
  }
  EXPECT_EQ(all, (std::set<std::string>{"a@9.g1", "a@10", "a@9", "b@9"}));
}

TEST_F(NamesTest, LatestIsByGenerationAndNeverSupersededOrDamaged) {
  store_.put("a", 100, 1);
  store_.put("a", 200, 2);
  store_.put("a", 150, 3, {.series = 1, .series_from = 100});
  store_.put("a", 160, 4, {.series = 1, .series_from = 100});
  test::write_file(store_.put("a", 170, 5, {.series = 1, .series_from = 100}) + "/manifest.json", "{");
  EXPECT_EQ(found("a@latest"), "step-000000160.g4");
  EXPECT_EQ(found("a@latest~1"), "step-000000150.g3");
  EXPECT_EQ(found("a@latest~2"), "step-000000100.g1") << "200 is superseded";
  EXPECT_EQ(found("a@latest~3"), "1000");
  EXPECT_EQ(found("a@latest~x"), "200");
}

TEST_F(NamesTest, LatestFollowsTheSeriesThatAJobWentBackTo) {
  store_.put("a", 100, 1);
  store_.put("a", 200, 2);
  store_.put("a", 150, 3, {.series = 1, .series_from = 100});
  store_.put("a", 210, 4, {.series = 2, .series_from = 200, .series_after = 0});
  EXPECT_EQ(found("a@latest"), "step-000000210.g4");
  EXPECT_EQ(found("a@latest~1"), "step-000000200.g2") << "150 is superseded";
}

TEST_F(NamesTest, BestIsLowestUnlessSaidOtherwise) {
  mark(store_.put("a", 1, 1), {.kind = Mark::Kind::metric, .name = "loss", .value = 2});
  mark(store_.put("a", 2, 2), {.kind = Mark::Kind::metric, .name = "loss", .value = 1});
  mark(store_.put("a", 3, 3), {.kind = Mark::Kind::metric, .name = "loss", .value = std::nan("")});
  store_.put("a", 4, 4);
  EXPECT_EQ(found("a@best"), "step-000000002.g2");
  EXPECT_EQ(found("a@best:loss:max"), "step-000000001.g1");
  EXPECT_EQ(found("a@best:los"), "1000");
  EXPECT_NE(message_.find("did you mean 'loss'"), std::string::npos) << message_;
  mark(store_.put("a", 5, 5), {.kind = Mark::Kind::metric, .name = "acc", .value = 1});
  EXPECT_EQ(found("a@best"), "200") << "which metric?";
  mark(store_.put("b", 1, 1), {.kind = Mark::Kind::metric, .name = "acc", .value = 0.5});
  mark(store_.put("b", 2, 2), {.kind = Mark::Kind::metric, .name = "acc", .value = 0.25});
  EXPECT_EQ(found("b@best"), "step-000000001.g1") << "of an accuracy the highest";
  EXPECT_EQ(found("b@best:acc:min"), "step-000000002.g2");
}

TEST_F(NamesTest, TagsAndIdsMustMeanOne) {
  const std::string one = store_.put("a", 1, 1);
  mark(one, {.kind = Mark::Kind::tag, .name = "paper'v1"});
  EXPECT_EQ(found("a@paper'v1"), "step-000000001.g1");
  EXPECT_EQ(found("a@papr'v1"), "1000");
  EXPECT_NE(message_.find("paper'v1"), std::string::npos) << message_;
  mark(store_.put("a", 2, 2), {.kind = Mark::Kind::tag, .name = "paper'v1"});
  EXPECT_EQ(found("a@paper'v1"), "200");
  EXPECT_NE(message_.find("a@2, a@1"), std::string::npos) << message_;
  const std::string id = hash128(std::string_view("a/step-000000001.g1")).hex();
  EXPECT_EQ(found(id.substr(0, 6)), "step-000000001.g1");
  EXPECT_EQ(found(id), "step-000000001.g1");
  EXPECT_EQ(found(id.substr(0, 5) + (id[5] == '0' ? "1" : "0")), "1000");
  EXPECT_EQ(found(id.substr(0, 3)), "200") << "too short";
  EXPECT_EQ(found("a@'; DROP TABLE checkpoints; --"), "1000");
  EXPECT_EQ(found("a@1"), "step-000000001.g1");
}

}  // namespace
}  // namespace ckpt::catalog
