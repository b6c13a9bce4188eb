// What a user says of a checkpoint (--map): shapes in flat tensors, and names.
#include "convert/apply_rules.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "convert/open_source.hpp"
#include "support/golden.hpp"

namespace ckpt {
namespace {

Result<Source> open(const std::string& root, const MapRules* rules = nullptr) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  return open_source(**io, root, "", {.rules = rules});
}

MapRules parsed(const std::string& list) {
  auto rules = MapRules::parse(R"({"ckpt-map": 1, "rules": [)" + list + "]}", "m.json");
  EXPECT_TRUE(rules.has_value()) << rules.error().message;
  return *std::move(rules);
}

/// Ten bytes in two pieces, the second one first in the file.
Map flat_map() {
  Map map;
  map.tensors = {{.name = "u._flat_param", .dtype = Dtype::u8, .shape = {10}},
                 {.name = "other", .dtype = Dtype::u8, .shape = {1}}};
  map.files = {{.path = "f", .bytes = 11}};
  auto table = std::make_shared<ChunkTable>(2);
  table->add(0, {10}, {{{0}, {4}}}, {.offset = 6, .dtype = Dtype::u8});
  table->add(0, {10}, {{{4}, {6}}}, {.offset = 0, .dtype = Dtype::u8});
  table->add(1, {1}, {{{0}, {1}}}, {.offset = 10, .dtype = Dtype::u8});
  table->seal();
  map.index = std::move(table);
  return map;
}

TEST(ApplyRules, ListedParametersAreTensorsOfTheMap) {
  const auto listed = [](const std::string& names) {
    return *MapRules::parse(R"({"ckpt-map": 1, "parameters": [)" + names + "]}", "m.json");
  };
  Map map = flat_map();
  map.aliases.push_back({.name = "wrapped.tied", .target = "other"});
  ASSERT_TRUE(apply_rules(map, listed(R"("tied", "other", "_flat_param")"), "root").has_value());
  EXPECT_EQ(map.parameter_order, (std::vector<std::string>{"wrapped.tied", "other", "u._flat_param"}));
  for (const char* name : {"othre", "ther", "wrapped", "u."}) {
    const auto refused = apply_rules(map, listed("\"" + std::string(name) + "\""), "root");
    ASSERT_FALSE(refused.has_value()) << name;
    EXPECT_EQ(refused.error().code, Errc::usage);
    EXPECT_EQ(refused.error().tensor, name);
  }
  EXPECT_EQ(apply_rules(map, listed(R"("othre")"), "root").error().hint, "did you mean other?");
}

TEST(ApplyRules, OfTiedNamesTheOneThatNoFileHoldsBecomesAnAlias) {
  const auto tied = [](const std::string& pair) {
    return *MapRules::parse(R"({"ckpt-map": 1, "rules": [], "tied": {)" + pair + "}}", "m.json");
  };
  for (const char* pair : {R"("head": "other")", R"("other": "head")"}) {
    Map map = flat_map();
    ASSERT_TRUE(apply_rules(map, tied(pair), "root").has_value());
    ASSERT_EQ(map.aliases.size(), 1u);
    EXPECT_EQ(map.aliases[0].name, "head");
    EXPECT_EQ(map.aliases[0].target, "other");
  }
  Map wrapped = flat_map();
  ASSERT_TRUE(apply_rules(wrapped, tied(R"("head": "_flat_param")"), "root").has_value());
  EXPECT_EQ(wrapped.aliases.at(0).name, "u.head");
  Map both = flat_map();
  both.aliases.push_back({.name = "head", .target = "other"});
  ASSERT_TRUE(apply_rules(both, tied(R"("head": "other")"), "root").has_value());
  EXPECT_EQ(both.aliases.size(), 1u);
  const auto refused = apply_rules(both, tied(R"("a": "b")"), "root");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::usage);
}

TEST(ApplyRules, LocalStateDictOfFsdp1EqualsTheTruthWithItsShapes) {
  const GoldenCase golden = load_golden("torch/fsdp1_local");
  std::stringstream text;
  text << std::ifstream(golden.root + "/../map.json").rdbuf();
  const auto rules = MapRules::parse(text.str(), "map.json");
  ASSERT_TRUE(rules.has_value()) << rules.error().message;
  const auto source = open(golden.root, &*rules);
  ASSERT_TRUE(source.has_value()) << source.error().message;
  const Map& map = source->map;
  ASSERT_TRUE(refuse_flat_parameters(map, golden.root).has_value());
  std::vector<std::uint32_t> all(map.tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto covered = check_coverage(map, all);
  ASSERT_TRUE(covered.has_value()) << covered.error().message;
  EXPECT_EQ(golden.truth.size(), 8u);
  for (const GoldenCase::Truth& truth : golden.truth) {
    SCOPED_TRACE(truth.name);
    const std::size_t index = find_tensor(map, truth.name);
    EXPECT_EQ(map.tensors[index].dtype, truth.dtype);
    EXPECT_EQ(map.tensors[index].shape, truth.shape);
    const Gathered gathered = gather(map, golden.root, index);
    EXPECT_TRUE(gathered.bytes == truth.bytes);
    EXPECT_TRUE(gathered.complete && gathered.once && gathered.crc_agrees);
  }
}

TEST(ApplyRules, WithoutShapesAFlatParameterIsUnsupportedByName) {
  const auto source = open(golden_root("torch/fsdp1_local"));
  ASSERT_TRUE(source.has_value()) << source.error().message;
  const auto refused = refuse_flat_parameters(source->map, "r");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_EQ(refused.error().tensor, "model._flat_param");
  EXPECT_NE(refused.error().message.find("1648 elements"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().hint.find("--map"), std::string::npos);
}

TEST(ApplyRules, RunsOfPiecesKeepTheirPlaces) {
  Map map = flat_map();
  const MapRules rules = parsed(R"({"tensor": "u._flat_param", "holds": [{"name": "a", "shape": [3]}, {"padding": 2},
                                    {"name": "b", "shape": [5, 1]}]})");
  const auto applied = apply_rules(map, rules, "r");
  ASSERT_TRUE(applied.has_value()) << applied.error().message;
  ASSERT_EQ(map.tensors.size(), 3u);
  EXPECT_EQ(map.tensors[1].name, "b");
  EXPECT_EQ(map.tensors[1].shape, (Shape{5, 1}));
  EXPECT_EQ(map.tensors[2].name, "other");
  std::vector<std::uint64_t> offsets;
  const auto note = [&](const PlacedChunk& placed) -> Result<> {
    offsets.push_back(placed.where.offset);
    return {};
  };
  ASSERT_TRUE(map.index->chunks(0, {0, 3}, note).has_value());
  ASSERT_TRUE(map.index->chunks(1, {0, 5}, note).has_value());
  ASSERT_TRUE(map.index->chunks(2, {0, 1}, note).has_value());
  EXPECT_EQ(offsets, (std::vector<std::uint64_t>{6, 1, 10}));
}

TEST(ApplyRules, ShapesThatDoNotFillTheFlatTensorAreAUsageError) {
  for (const std::string shape : {"[9]", "[11]", "[3, 3]"}) {
    Map map = flat_map();
    const auto applied = apply_rules(
        map, parsed(R"({"tensor": "u._flat_param", "holds": [{"name": "a", "shape": )" + shape + "}]}"), "r");
    ASSERT_FALSE(applied.has_value()) << shape;
    EXPECT_EQ(applied.error().code, Errc::usage);
    EXPECT_NE(applied.error().message.find("it has 10 elements"), std::string::npos) << applied.error().message;
  }
}

TEST(ApplyRules, NamesAreReplacedAndMustNotCollide) {
  Map map = flat_map();
  map.aliases = {{"tied", "other"}};
  ASSERT_TRUE(apply_rules(map, parsed(R"({"tensor": "oth*", "name": "new.*"})"), "r").has_value());
  EXPECT_EQ(map.tensors[1].name, "new.er");
  EXPECT_EQ(map.aliases[0].target, "new.er");
  const auto collides = apply_rules(map, parsed(R"({"tensor": "new.er", "name": "u._flat_param"})"), "r");
  ASSERT_FALSE(collides.has_value());
  EXPECT_EQ(collides.error().code, Errc::usage);
}

TEST(ApplyRules, ATiedNameMustNotCollideEither) {
  Map map = flat_map();
  map.aliases = {{"tied", "other"}};
  const auto applied = apply_rules(map, parsed(R"({"tensor": "tied", "name": "u._flat_param"})"), "root");
  ASSERT_FALSE(applied);
  EXPECT_EQ(applied.error().code, Errc::usage);
  EXPECT_NE(applied.error().message.find("a tied name and another tensor"), std::string::npos)
      << applied.error().message;
}

TEST(ApplyRules, ARuleThatMatchesNothingIsTold) {
  Map map = flat_map();
  ASSERT_TRUE(apply_rules(map, parsed(R"({"tensor": "nobody", "join": 0})"), "r").has_value());
  ASSERT_EQ(map.findings.size(), 1u);
  EXPECT_NE(map.findings[0].text.find("'nobody'"), std::string::npos);
}

TEST(ApplyRules, OtherRulesAreAnotherFingerprint) {
  Map one = flat_map();
  Map two = flat_map();
  ASSERT_TRUE(apply_rules(one, parsed(R"({"tensor": "x", "name": "y"})"), "r").has_value());
  ASSERT_TRUE(apply_rules(two, parsed(R"({"tensor": "x", "name": "z"})"), "r").has_value());
  EXPECT_NE(one.metadata_hash, two.metadata_hash);
}

}  // namespace
}  // namespace ckpt
