// The ledger of consumed samples as text.
#include "format/universal/ledger.hpp"

#include <gtest/gtest.h>

#include <string>

namespace ckpt::ledger {
namespace {

std::string sharded_text(const std::string& replace = "", const std::string& by = "") {
  std::string text =
      R"({"data_ledger": 1, "epoch": 2, "seed": 7, "samples": 30, "consumed": 8, "global_batch": 4, "world": 2,)"
      R"( "order": "sharded", "shards": [["a.tar", 10], ["b.tar", 20]],)"
      R"( "ranks": [{"consumed": 4, "ranges": [[0, 0, 10], [1, 0, 5]]}, {"consumed": 4, "ranges": [[1, 5, 20]]}]})";
  if (const auto at = text.find(replace); !replace.empty()) text.replace(at, replace.size(), by);
  return text;
}

TEST(LedgerText, IsReadAsItWasWritten) {
  auto global = begin_global(3, UINT64_MAX, 1000, 32, 4);
  ASSERT_TRUE(global);
  *global = advance(*global, 3);
  auto sharded = begin_sharded(0, 5, {{"a", 7}, {"empty", 0}, {"\"quoted\"\n", 9}}, 4, 3);
  ASSERT_TRUE(sharded);
  *sharded = advance(*sharded, 1);
  for (const Ledger& ledger : {*global, *sharded, *remap(*sharded, 2)}) {
    const auto read = parse(build(ledger));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, ledger);
    EXPECT_EQ(build(*read), build(ledger));
  }
  const auto read = parse(sharded_text());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->ranks[0].ranges[1], (Range{1, 0, 5}));
}

TEST(LedgerText, HoldsNoNameThatItCouldNotBeReadWith) {
  const auto begun = begin_sharded(0, 5, {{"a", 7}, {"\xff.tar", 9}}, 4, 3);
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code, Errc::usage);
  auto ledger = begin_sharded(0, 5, {{"a", 7}}, 4, 3);
  ASSERT_TRUE(ledger);
  ledger->shards[0].name = "\xff";
  EXPECT_FALSE(check(*ledger));
}

TEST(LedgerText, ThatWouldReadASampleTwiceOrNeverIsCorrupt) {
  const auto reason = [](const std::string& text) {
    const auto read = parse(text);
    if (read) return std::string("read");
    EXPECT_EQ(read.error().code, Errc::corrupt) << text;
    return read.error().message;
  };
  const auto says = [&](const std::string& from, const std::string& to, const std::string& what) {
    const std::string text = reason(sharded_text(from, to));
    EXPECT_NE(text.find(what), std::string::npos) << to << ": " << text;
  };
  says("[1, 5, 20]", "[1, 4, 20]", "two ranges");
  says("[1, 5, 20]", "[1, 6, 20]", "consumed: 8, but the ranks' ranges leave 9");
  says("\"consumed\": 8", "\"consumed\": 9", "leave 8");
  says("[1, 5, 20]", "[1, 5, 21]", "passes the end");
  says("[1, 5, 20]", "[2, 5, 20]", "does not exist");
  says("[1, 5, 20]", "[1, 20, 20]", "empty");
  says("{\"consumed\": 4", "{\"consumed\": 16", "more consumed than a rank's");
  says("\"samples\": 30", "\"samples\": 31", "not the sum");
  says("[\"a.tar\", 10]", "[\"a.tar\", \"18446744073709551615\"]", "overflow");
  says("\"world\": 2", "\"world\": 3", "not as many");
  says("\"global_batch\": 4", "\"global_batch\": 1", "some of 2 ranks");
  says("\"world\": 2", "\"world\": 0", "no ranks");
}

TEST(LedgerText, OfAnotherShapeIsCorruptAndOfALaterVersionNewer) {
  for (const char* text : {"", "[]", "{}", R"({"data_ledger": 0})", R"({"data_ledger": "1"})", R"({"data_ledger": -1})",
                           R"({"data_ledger": 1, "epoch": 1.5})"}) {
    const auto read = parse(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, Errc::corrupt) << text;
  }
  for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
           {"\"epoch\": 2", "\"epoch\": null"},
           {"\"epoch\": 2", "\"epok\": 2"},
           {"\"epoch\": 2", "\"epoch\": 2, \"more\": 1"},
           {"\"order\": \"sharded\"", "\"order\": \"random\""},
           {"\"order\": \"sharded\"", "\"order\": \"global\""},
           {"[\"a.tar\", 10]", "[10, \"a.tar\"]"},
           {"[1, 5, 20]", "[1, 5]"},
           {"{\"consumed\": 4,", "{\"consumed\": 4, \"x\": 1,"}}) {
    const auto read = parse(sharded_text(from, to));
    ASSERT_FALSE(read) << to;
    EXPECT_EQ(read.error().code, Errc::corrupt) << to;
  }
  EXPECT_EQ(parse(R"({"data_ledger": 2, "whatever": []})").error().code, Errc::newer);
}

TEST(Ledger, RefusesRanksThatGetNoSample) {
  EXPECT_EQ(begin_global(0, 0, 10, 3, 4).error().code, Errc::usage);
  EXPECT_EQ(begin_global(0, 0, 10, 3, 0).error().code, Errc::usage);
  EXPECT_EQ(begin_sharded(0, 0, {{"a", UINT64_MAX}, {"b", 1}}, 3, 1).error().code, Errc::usage);
  EXPECT_EQ(remap(*begin_global(0, 0, 10, 3, 2), 4).error().code, Errc::usage);
}

}  // namespace
}  // namespace ckpt::ledger
