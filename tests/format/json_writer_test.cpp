#include "format/text/json_writer.hpp"

#include <limits>

#include "format/text/json.hpp"

namespace ckpt::json {
namespace {

TEST(JsonWriter, PutsCommasAndColonsBetweenWhatIsWritten) {
  std::string text;
  Writer out(text);
  out.begin_object().member("a", 1).member("b", "x").key("c").begin_array().value(true).value(nullptr).end_array();
  out.key("d").begin_object().end_object().key("e").raw("[7]").end_object();
  EXPECT_EQ(text, R"({"a":1,"b":"x","c":[true,null],"d":{},"e":[7]})");
}

TEST(JsonWriter, WritesRangesAndWhatMayBeAbsent) {
  std::string text;
  Writer(text)
      .begin_object()
      .member("names", std::vector<std::string>{"a", "b"})
      .member("none", std::vector<int>{})
      .member("nested", std::vector<std::vector<int>>{{1}, {}})
      .member("some", std::optional<std::uint64_t>(5))
      .member("absent", std::optional<std::string>())
      .end_object();
  EXPECT_EQ(text, R"({"names":["a","b"],"none":[],"nested":[[1],[]],"some":5,"absent":null})");
}

TEST(JsonWriter, NumbersReadBackEqual) {
  const std::vector<double> reals{0.0,
                                  -0.0,
                                  1.0,
                                  0.1,
                                  -2.5e-300,
                                  1e22,
                                  123456789012345680.0,
                                  std::numeric_limits<double>::max(),
                                  std::numeric_limits<double>::denorm_min()};
  std::string text;
  Writer out(text);
  out.begin_array().value(reals).value(std::numeric_limits<std::uint64_t>::max());
  out.value(std::numeric_limits<std::int64_t>::min()).value(-1).value(std::numeric_limits<double>::quiet_NaN());
  out.value(-std::numeric_limits<double>::infinity()).end_array();
  const auto document = parse(text);
  ASSERT_TRUE(document) << text;
  const Array& all = *document->array();
  const Array& read = *all[0].array();
  for (std::size_t i = 0; i < reals.size(); ++i) {
    ASSERT_NE(read[i].real(), nullptr) << text;  // 1.0 stays a real
    EXPECT_EQ(*read[i].real(), reals[i]);
  }
  EXPECT_EQ(*all[1].natural(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(*all[2].negative(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(*all[3].negative(), -1);
  EXPECT_TRUE(std::holds_alternative<std::nullptr_t>(all[4].v));
  EXPECT_TRUE(std::holds_alternative<std::nullptr_t>(all[5].v));
}

TEST(JsonWriter, LaysADocumentOutAsItsStyleSays) {
  const auto written = [](Style style) {
    std::string text;
    Writer out(text, style);
    out.begin_object().member("a", std::vector<int>{1, 2}).key("b").begin_object().end_object();
    out.line("\n").member("c", 3).line("\n").end_object();
    return text;
  };
  EXPECT_EQ(written({}), "{\"a\":[1,2],\"b\":{},\n\"c\":3\n}");
  EXPECT_EQ(written({.spaced = true}), "{\"a\": [1, 2], \"b\": {},\n\"c\": 3\n}");
  std::string text;
  Writer(text, {.indent = 2, .depth = 1})
      .begin_object()
      .member("a", std::vector<int>{1, 2})
      .key("b")
      .begin_array()
      .end_array()
      .end_object();
  EXPECT_EQ(text, "{\n    \"a\": [\n      1,\n      2\n    ],\n    \"b\": []\n  }");
}

TEST(JsonWriter, TextsAndKeysAreWrittenByTheQuoteOfTheStyle) {
  std::string text;
  const auto shout = [](std::string& out, std::string_view given) { append_quoted(out, std::string(given) + "!"); };
  Writer(text, {.quote = shout}).begin_object().member("k\n", "v").end_object();
  EXPECT_EQ(text, R"({"k\n!":"v!"})");
}

}  // namespace
}  // namespace ckpt::json
