// The tree that the Python package stores as JSON.
#include "format/universal/python_tree.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "format/model/object_tree.hpp"
#include "format/model/same_value.hpp"

namespace ckpt::universal {
namespace {

Result<ValuePtr> tree(const std::string& node) {
  return parse_python_tree(R"({"version": 1, "tree": )" + node + "}");
}

/// Of a tree that is one value.
Value value(const std::string& node) {
  const auto parsed = tree(node);
  EXPECT_TRUE(parsed.has_value()) << node << ": " << parsed.error().message;
  return parsed ? **parsed : Value{};
}

template <class T>
void expect_same(const std::string& node, T expected) {
  EXPECT_TRUE(same_value(value(node), Value{std::move(expected)})) << node;
}

TEST(PythonTree, PlainValuesHaveEveryBit) {
  expect_same("null", None{});
  expect_same("true", true);
  expect_same("-7", std::int64_t{-7});
  expect_same("9223372036854775807", INT64_MAX);
  expect_same("-9223372036854775808", INT64_MIN);
  expect_same("9223372036854775808", BigInt{"9223372036854775808"});
  expect_same("1208925819614629174706176", BigInt{"1208925819614629174706176"});
  expect_same("-1208925819614629174706176", BigInt{"-1208925819614629174706176"});
  expect_same("-9223372036854775809", BigInt{"-9223372036854775809"});
  expect_same("1000000000000000001", std::int64_t{1000000000000000001});
  expect_same("12345678901234567890.5", 12345678901234567890.5);
  const std::string long_one = "1" + std::string(4000, '0');  // beyond what a float holds
  expect_same(long_one, BigInt{long_one});
  expect_same(R"("12345678901234567890")", std::string("12345678901234567890"));
  expect_same("0.1", 0.1);
  expect_same("1.0", 1.0);
  expect_same("1e+22", 1e22);
  expect_same(R"({"float": "inf"})", HUGE_VAL);
  expect_same(R"({"float": "-inf"})", -HUGE_VAL);
  EXPECT_TRUE(std::isnan(std::get<double>(value(R"({"float": "nan"})").v)));
}

TEST(PythonTree, TextMayHoldLoneSurrogatesAndWhatMarksThem) {
  expect_same(R"("a\n\u00e9")", std::string("a\n\xc3\xa9"));
  expect_same(R"("\ud800x")", std::string("\xed\xa0\x80x"));
  expect_same(R"("\udc00\ud800\ud83d\ude00")", std::string("\xed\xb0\x80\xed\xa0\x80\xf0\x9f\x98\x80"));
  expect_same(R"("\uffffffff")", std::string("\xef\xbf\xbf") + "ffff");
  expect_same(
      "\"\xef\xbf\xbf"
      "d800\"",
      std::string("\xef\xbf\xbf") + "d800");
  expect_same(R"("\\ud800")", std::string("\\ud800"));
}

TEST(PythonTree, ContainersKeepTheirKindAndTheirOrder) {
  const Value made = value(
      R"({"dict": [["z", {"list": [1, {"tuple": [2]}]}], [7, {"dict": []}], ["w", {"tensor": "a%2Eb", "library": "torch"}]]})");
  const auto& items = std::get<Dict>(made.v).items;
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(*text_of(items[0].first.get()), "z");
  const List& list = std::get<List>(items[0].second->v);
  EXPECT_EQ(list.kind, List::Kind::list);
  ASSERT_EQ(list.items.size(), 2U);
  EXPECT_EQ(std::get<List>(list.items[1]->v).kind, List::Kind::tuple);
  EXPECT_EQ(std::get<std::int64_t>(items[1].first->v), 7);
  EXPECT_TRUE(std::get<Dict>(items[1].second->v).items.empty());
  EXPECT_EQ(std::get<TensorRef>(items[2].second->v).name, "a%2Eb");
}

TEST(PythonTree, AHundredLevelsAreRead) {
  std::string node = "1";
  for (int i = 0; i < 100; ++i) node = R"({"dict": [["k", )" + node + "]]}";
  EXPECT_TRUE(tree(node).has_value());
  node = R"({"list": [)" + node + "]}";
  EXPECT_EQ(tree(node).error().code, Errc::corrupt);
}

TEST(PythonTree, ALaterVersionIsNewer) {
  EXPECT_EQ(parse_python_tree(R"({"version": 2, "tree": {"bag": []}})").error().code, Errc::newer);
}

TEST(PythonTree, OneAndTheTextOfOneAreTwoKeys) {
  EXPECT_EQ(std::get<Dict>(value(R"({"dict": [[1, "a"], ["1", "b"]]})").v).items.size(), 2U);
}

TEST(PythonTree, AnythingElseIsCorrupt) {
  const std::vector<std::string> nodes = {"",
                                          "[1]",
                                          "{}",
                                          R"({"bag": []})",
                                          R"({"dict": {}})",
                                          R"({"dict": [1]})",
                                          R"({"dict": [["a"]]})",
                                          R"({"dict": [["a", 1, 2]]})",
                                          R"({"dict": [[null, 1]]})",
                                          R"({"dict": [["", 1]]})",
                                          R"({"dict": [[1.5, 1]]})",
                                          R"({"dict": [["a", 1], ["b", 2], ["a", 3]]})",
                                          R"({"dict": [[7, 1], [7, 3]]})",
                                          R"({"tensor": "a"})",
                                          R"({"dict": [[{"list": []}, 1]]})",
                                          R"({"list": 1})",
                                          R"({"list": [], "tuple": []})",
                                          R"({"float": "2.5"})",
                                          R"({"float": 2.5})",
                                          R"({"tensor": 1})",
                                          R"({"tensor": "a", "name": "b"})",
                                          R"({"library": "torch", "tensor": "a"})",
                                          R"("\ud8")"};
  for (const std::string& node : nodes) {
    const auto parsed = tree(node);
    ASSERT_FALSE(parsed.has_value()) << node;
    EXPECT_EQ(parsed.error().code, Errc::corrupt) << node;
  }
  for (const char* text : {"", "null", "[]", "{}", R"({"version": 1})", R"({"tree": 1})", R"({"tree": 1, "tree": 2})",
                           R"({"version": 1, "tree": 1} 1)"})
    EXPECT_EQ(parse_python_tree(text).error().code, Errc::corrupt) << text;
}

}  // namespace
}  // namespace ckpt::universal
