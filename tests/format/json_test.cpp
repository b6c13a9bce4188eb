#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace ckpt::json {
namespace {

using namespace std::string_literals;

void expect_corrupt_at(std::string_view document, std::size_t offset, const Limits& limits = {}) {
  const auto result = parse(document, limits);
  ASSERT_FALSE(result) << document;
  EXPECT_EQ(result.error().code, Errc::corrupt) << document;
  EXPECT_EQ(result.error().offset, offset) << document << ": " << result.error().message;
}

TEST(Json, GivesEveryKindOfValue) {
  const auto value = parse(R"( {"a":[null,true,-7,18446744073709551615,2.5,"x\ny\u00fc\ud83d\ude00"],"b":{}} )");
  ASSERT_TRUE(value) << value.error().message;
  const Array* a = value->find("a")->array();
  ASSERT_NE(a, nullptr);
  ASSERT_EQ(a->size(), 6u);
  EXPECT_TRUE(std::holds_alternative<std::nullptr_t>((*a)[0].v));
  EXPECT_TRUE(*(*a)[1].boolean());
  EXPECT_EQ(*(*a)[2].negative(), -7);
  EXPECT_EQ(*(*a)[3].natural(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(*(*a)[4].real(), 2.5);
  EXPECT_EQ(*(*a)[5].text(), "x\nyü😀");
  ASSERT_NE(value->find("b")->object(), nullptr);
  EXPECT_TRUE(value->find("b")->object()->empty());
  EXPECT_EQ(value->find("c"), nullptr);
}

TEST(Json, KeepsMembersInDocumentOrder) {
  const auto value = parse(R"({"z":1,"a":{"q":2,"b":3},"m":4})");
  ASSERT_TRUE(value);
  const Object& members = *value->object();
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].first, "z");
  EXPECT_EQ(members[1].first, "a");
  EXPECT_EQ(members[1].second.object()->front().first, "q");
  EXPECT_EQ(members[2].first, "m");
}

TEST(Json, AcceptsAScalarDocument) {
  EXPECT_EQ(*parse("\"x\"")->text(), "x");
  EXPECT_EQ(*parse(" 7 ")->natural(), 7u);
}

TEST(Json, RefusesDuplicateKeysAtAnyDepth) {
  expect_corrupt_at(R"({"a":1,"a":2})", 10);
  expect_corrupt_at(R"({"x":[{"k":1,"\u006b":2}]})", 21);
  EXPECT_TRUE(parse(R"({"a":{"a":1},"b":[{"a":1},{"a":1}]})"));
}

TEST(Json, FindsOneDuplicateAmongManyKeys) {
  std::string document = "{";
  for (int i = 0; i < 5000; ++i) document += "\"k" + std::to_string(i) + "\":0,";
  const std::size_t end_of_twin = document.size() + 7;
  document += "\"k2500\":1}";
  expect_corrupt_at(document, end_of_twin);
}

TEST(Json, CountsNestingInsteadOfRecursing) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse(nested(64)));
  expect_corrupt_at(nested(65), 65);
  expect_corrupt_at(std::string(5'000'000, '['), 65);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_FALSE(parse(objects));
}

TEST(Json, RefusesWhatIsNotStrictJson) {
  for (const std::string& document : {""s,
                                      " "s,
                                      "{"s,
                                      "[1,]"s,
                                      "{\"a\":1,}"s,
                                      "NaN"s,
                                      "[Infinity]"s,
                                      "-Infinity"s,
                                      "[1e999]"s,
                                      "01"s,
                                      "+1"s,
                                      "'a'"s,
                                      "// c\n1"s,
                                      "[1] x"s,
                                      "[1][2]"s,
                                      "\"a\nb\""s,
                                      "\xef\xbb\xbf{}"s,
                                      "{\"a\"}"s,
                                      "tru"s,
                                      "1\0"s,
                                      "[1]\0garbage"s,
                                      "\"\\ud800\""s,
                                      "\"\\x41\""s}) {
    const auto result = parse(document);
    ASSERT_FALSE(result) << document;
    EXPECT_EQ(result.error().code, Errc::corrupt) << document;
    EXPECT_TRUE(result.error().offset.has_value()) << document;
  }
}

TEST(Json, RefusesInvalidUtf8) {
  for (const std::string& text : {"\xff"s, "\xc0\x80"s, "\xed\xa0\x80"s, "\xf5\x80\x80\x80"s, "\xe2\x82"s})
    EXPECT_FALSE(parse("\"" + text + "\"")) << text;
}

TEST(Json, KeepsItsLimits) {
  expect_corrupt_at("[1,2,3]", 0, {.max_bytes = 6});
  expect_corrupt_at("[1,2,3]", 7, {.max_values = 3});
  EXPECT_TRUE(parse("[1,2,3]", {.max_bytes = 7, .max_values = 4}));
  std::string many = "[0";
  for (std::size_t i = 2; i < kMostHeld; ++i) many += ",0";
  EXPECT_TRUE(parse(many + "]"));
  expect_corrupt_at(many + ",0]", many.size() + 3, {});
}

TEST(Json, MessagesAreShortAndPrintable) {
  const auto result = parse("[\"" + std::string(100'000, '\xff') + "\"]");
  ASSERT_FALSE(result);
  EXPECT_LT(result.error().message.size(), 300u);
  for (const char c : result.error().message) EXPECT_TRUE(c >= 0x20 && c < 0x7f);
}

TEST(Json, AHandlersErrorEndsTheParse) {
  struct Stop final : Handler {
    int seen = 0;
    Result<> on(const Event& event) override {
      ++seen;
      if (event.kind == Event::Kind::natural) return fail(Errc::refused, "enough");
      return {};
    }
  } stop;
  const auto result = parse("[1,2,3]", stop);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::refused);
  EXPECT_EQ(stop.seen, 2);
}

TEST(Json, QuotedTextReadsBackEqual) {
  std::string all;
  for (int c = 0; c < 0x80; ++c) all += static_cast<char>(c);
  all += "üñ😀";
  std::string quoted;
  append_quoted(quoted, all);
  const auto value = parse(quoted);
  ASSERT_TRUE(value) << value.error().message;
  EXPECT_EQ(*value->text(), all);
}

}  // namespace
}  // namespace ckpt::json
