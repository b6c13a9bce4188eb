#include "format/model/map_rules.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ckpt {
namespace {

Result<MapRules> rules(const std::string& list) {
  return MapRules::parse(R"({"ckpt-map": 1, "rules": [)" + list + "]}", "m.json");
}

TEST(MatchStars, EachStarIsAsShortAsPossibleFromTheLeft) {
  using Texts = std::vector<std::string_view>;
  EXPECT_EQ(match_stars("a.b.c", "a.b.c"), Texts{});
  EXPECT_EQ(match_stars("a.b.c", "*"), (Texts{"a.b.c"}));
  EXPECT_EQ(match_stars("a.b.c", "*.*"), (Texts{"a", "b.c"}));
  EXPECT_EQ(match_stars("a.b.c", "a.*.c"), (Texts{"b"}));
  EXPECT_EQ(match_stars("a.c", "a*.c"), (Texts{""}));
  EXPECT_EQ(match_stars("a.c", "a.*.c"), std::nullopt);
  EXPECT_EQ(match_stars("a.b.c", "*.d"), std::nullopt);
  EXPECT_EQ(match_stars("a.b.c", "b*"), std::nullopt);
  EXPECT_EQ(match_stars("", "*"), (Texts{""}));
}

TEST(MapRules, TheFirstRuleOfItsKindDecides) {
  const auto all = rules(R"({"tensor": "m.*.weight", "join": 1}, {"tensor": "m.*", "join": "same"},
                            {"tensor": "m.*", "name": "*"}, {"tensor": "flat", "holds": [
                              {"name": "a", "shape": [2, 3]}, {"padding": 2}, {"name": "s", "shape": []}]})");
  ASSERT_TRUE(all.has_value()) << all.error().message;
  EXPECT_EQ(all->join("m.0.weight")->dim, 1u);
  EXPECT_EQ(all->join("m.0.bias")->dim, std::nullopt);
  EXPECT_FALSE(all->join("n.0.weight").has_value());
  EXPECT_EQ(all->renamed("m.0.weight"), "0.weight");
  EXPECT_EQ(all->renamed("flat"), std::nullopt);
  EXPECT_EQ(all->unused(), std::vector<std::string>{"flat"});
  const auto* held = all->holds("flat");
  ASSERT_NE(held, nullptr);
  ASSERT_EQ(held->size(), 3u);
  EXPECT_EQ((*held)[0].name, "a");
  EXPECT_EQ((*held)[0].shape, (Shape{2, 3}));
  EXPECT_EQ((*held)[1].name, "");
  EXPECT_EQ((*held)[1].shape, Shape{2});
  EXPECT_EQ((*held)[2].shape, Shape{});
  EXPECT_EQ(all->unused(), std::vector<std::string>{});
}

TEST(MapRules, OfANameAndAPatternTheFirstDecidesToo) {
  const auto all =
      rules(R"({"tensor": "b", "name": "x"}, {"tensor": "b", "name": "twice"}, {"tensor": "*", "name": "y*"},
                            {"tensor": "c", "name": "z"}, {"tensor": "c", "join": 0})");
  const auto unnamed = rules(R"({"tensor": "", "name": "w"})");
  ASSERT_TRUE(unnamed.has_value()) << unnamed.error().message;
  EXPECT_EQ(unnamed->renamed(""), "w");
  ASSERT_TRUE(all.has_value()) << all.error().message;
  EXPECT_EQ(all->renamed("b"), "x");
  EXPECT_EQ(all->renamed("c"), "yc");
  EXPECT_EQ(all->renamed(""), "y");
  EXPECT_EQ(all->join("c")->dim, 0u);
  EXPECT_FALSE(all->join("b").has_value());
  EXPECT_EQ(all->unused(), (std::vector<std::string>{"b", "c"}));
}

TEST(MapRules, WhatIsNoRuleIsAUsageErrorThatSaysWhich) {
  const std::string sound = R"({"tensor": "a", "join": 0}, )";
  for (const std::string bad :
       {R"(7)", R"({"join": 0})", R"({"tensor": "a"})", R"({"tensor": "a", "join": -1})",
        R"({"tensor": "a", "join": 0.5})", R"({"tensor": "a", "join": "dim"})",
        R"({"tensor": "a", "join": 0, "name": "b"})", R"({"tensor": "a", "shape": [1]})",
        R"({"tensor": "a*", "name": "b"})", R"({"tensor": "a", "name": ""})",
        R"({"tensor": "a*", "holds": [{"name": "b", "shape": [1]}]})", R"({"tensor": "a", "holds": []})",
        R"({"tensor": "a", "holds": [{"name": "b"}]})", R"({"tensor": "a", "holds": [{"name": "b", "shape": [-1]}]})",
        R"({"tensor": "a", "holds": [{"name": "b", "shape": [4294967296, 4294967296, 2]}]})",
        R"({"tensor": "a", "holds": [{"padding": 1, "name": "b"}]})"}) {
    const auto parsed = rules(sound + bad);
    ASSERT_FALSE(parsed.has_value()) << bad;
    EXPECT_EQ(parsed.error().code, Errc::usage) << bad;
    EXPECT_EQ(parsed.error().file, "m.json");
    EXPECT_NE(parsed.error().message.find("rule 2"), std::string::npos) << parsed.error().message;
  }
}

TEST(MapRules, ParametersAreListedWithOrWithoutRules) {
  const auto alone = MapRules::parse(R"({"ckpt-map": 1, "parameters": ["b", "a"]})", "m.json");
  ASSERT_TRUE(alone.has_value()) << alone.error().message;
  EXPECT_EQ(alone->parameters(), (std::vector<std::string>{"b", "a"}));
  EXPECT_TRUE(alone->unused().empty());
  const auto both =
      MapRules::parse(R"({"ckpt-map": 1, "rules": [{"tensor": "a", "name": "b"}], "parameters": ["b"]})", "m");
  ASSERT_TRUE(both.has_value()) << both.error().message;
  EXPECT_EQ(both->parameters(), (std::vector<std::string>{"b"}));
  EXPECT_EQ(both->renamed("a"), "b");
  EXPECT_NE(alone->hash(), both->hash());
  const auto tied = MapRules::parse(R"({"ckpt-map": 1, "tied": {"a": "b"}})", "m.json");
  ASSERT_TRUE(tied.has_value()) << tied.error().message;
  EXPECT_EQ(tied->tied(), (std::vector<std::pair<std::string, std::string>>{{"a", "b"}}));
}

TEST(MapRules, AnotherFileIsAUsageError) {
  for (const std::string text :
       {"", "{", "[]", "{}", R"({"rules": []})", R"({"ckpt-map": 2, "rules": []})", R"({"ckpt-map": 1})",
        R"({"ckpt-map": 1, "rules": [], "more": 1})", R"({"ckpt-map": 1, "rules": 1, "parameters": ["a"]})",
        R"({"ckpt-map": 1, "parameters": []})", R"({"ckpt-map": 1, "parameters": "a"})",
        R"({"ckpt-map": 1, "parameters": ["a", 1]})", R"({"ckpt-map": 1, "parameters": [""]})",
        R"({"ckpt-map": 1, "parameters": ["a", "b", "a"]})", R"({"ckpt-map": 1, "rules": [], "tied": ["a"]})",
        R"({"ckpt-map": 1, "rules": [], "tied": {"a": 1}})", R"({"ckpt-map": 1, "rules": [], "tied": {"a": "a"}})"}) {
    const auto parsed = MapRules::parse(text, "m.json");
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code, Errc::usage) << text;
    EXPECT_EQ(parsed.error().message.substr(0, 14), "m.json: --map:") << parsed.error().message;
  }
}

}  // namespace
}  // namespace ckpt
