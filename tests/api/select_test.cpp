#include "api/convert/select.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace ckpt {
namespace {

Tensor weight(std::string name, Dtype dtype = Dtype::bf16) {
  return {.name = std::move(name), .dtype = dtype, .shape = {4}};
}
Tensor slot(const std::string& parameter, const std::string& kind) {
  return {.name = "optimizer.state." + parameter + "." + kind,
          .dtype = Dtype::f32,
          .shape = {4},
          .role = Role::slot,
          .parameter = parameter,
          .slot = kind};
}

Map trained() {
  Map map;
  map.tensors = {weight("w"), weight("frozen"), slot("w", "master"), slot("w", "exp_avg")};
  map.tensors.push_back({.name = "ids", .dtype = Dtype::i64, .shape = {4}, .role = Role::buffer});
  map.aliases = {{"tied", "w"}};
  map.objects = {{.name = "optimizer.param_groups"}, {.name = "global_steps"}};
  return map;
}

std::vector<std::string> names(const Selection& selection) {
  std::vector<std::string> out;
  for (const Selected& selected : selection.tensors) out.push_back(selected.name);
  return out;
}

using Names = std::vector<std::string>;

TEST(Select, EverythingIsTakenByDefault) {
  const auto selection = select(trained(), {});
  ASSERT_TRUE(selection);
  EXPECT_EQ(selection->tensors.size(), 5u);
  EXPECT_EQ(selection->objects.size(), 2u);
  EXPECT_EQ(selection->aliases.size(), 1u);
  EXPECT_FALSE(selection->partial);
}

TEST(Select, ATiedNameMeansTheTensorThatItNames) {
  const auto selection = select(trained(), {.only = {"tie?"}});
  ASSERT_TRUE(selection);
  EXPECT_EQ(names(*selection), (Names{"w"}));
  ASSERT_EQ(selection->aliases.size(), 1u);
  EXPECT_EQ(selection->aliases[0].name, "tied");
  ASSERT_EQ(selection->notes.size(), 1u);
  EXPECT_EQ(selection->notes[0].text, "--only 'tie?': tied is stored as w");
  EXPECT_FALSE(selection->partial);
}

TEST(Select, ATiedNameThatMeetsAnotherTensorIsRefusedLikeATensor) {
  Map map;
  map.nested = true;
  map.tensors = {weight("model.w"), weight("x"), slot("w", "exp_avg")};
  map.aliases = {{"model.x", "model.w"}};
  const auto clash = select(map, {.source = "f.pt", .only = {"weights"}});  // which drops the wrapper "model."
  ASSERT_FALSE(clash);
  EXPECT_EQ(clash.error().code, Errc::usage);
  EXPECT_EQ(clash.error().message, "f.pt: 'x' and 'model.x' would both be named 'x'");
  EXPECT_TRUE(select(map, {.source = "f.pt"})) << "their whole names are apart";

  map.tensors = {weight("a"), weight("b")};
  map.nested = false;
  map.aliases = {{"m.b", "a"}};
  EXPECT_TRUE(select(map, {}));
  EXPECT_EQ(select(map, {.strip_prefix = "m."}).error().code, Errc::usage);
  map.aliases = {{"m.c", "a"}, {"c", "b"}};
  EXPECT_EQ(select(map, {.strip_prefix = "m."}).error().code, Errc::usage) << "two tied names of two tensors";
}

TEST(Select, ATiedNameThatBecomesItsTensorsOwnIsLeftOut) {
  Map map;
  map.tensors = {weight("a"), weight("b")};
  map.aliases = {{"m.a", "a"}, {"m.c", "b"}, {"c", "b"}};
  const auto selection = select(map, {.strip_prefix = "m."});
  ASSERT_TRUE(selection) << selection.error().message;
  ASSERT_EQ(selection->aliases.size(), 1u);
  EXPECT_EQ(selection->aliases[0].name, "c");
  EXPECT_EQ(selection->aliases[0].target, "b");
}

TEST(Select, WeightsTakeTheMasterWhereThereIsOneAndSaySo) {
  const auto selection = select(trained(), {.only = {"weights"}});
  ASSERT_TRUE(selection);
  EXPECT_EQ(names(*selection), (Names{"w", "frozen", "ids"}));
  EXPECT_EQ(selection->tensors[0].tensor, 2u);
  EXPECT_EQ(selection->tensors[0].dtype, Dtype::f32);
  EXPECT_EQ(selection->tensors[1].dtype, Dtype::bf16);
  EXPECT_TRUE(std::any_of(selection->notes.begin(), selection->notes.end(), [](const Finding& f) {
    return f.text.find("fp32 masters (1 parameters)") != std::string::npos;
  }));
  EXPECT_TRUE(selection->objects.empty());
}

TEST(Select, WeightsParamTakesTheStoredOnes) {
  const auto selection = select(trained(), {.only = {"weights"}, .weights = WeightsFrom::param});
  ASSERT_TRUE(selection);
  EXPECT_EQ(selection->tensors[0].tensor, 0u);
}

TEST(Select, WeightsMasterWithoutAMasterIsNotAllDone) {
  Map map = trained();
  map.tensors.push_back(slot("frozen", "exp_avg"));  // it is trained after all
  const auto selection = select(map, {.only = {"weights"}, .weights = WeightsFrom::master});
  ASSERT_TRUE(selection);
  EXPECT_TRUE(selection->partial);
}

TEST(Select, WeightsMasterTakesFrozenParametersAsStored) {
  const auto selection = select(trained(), {.only = {"weights"}, .weights = WeightsFrom::master});
  ASSERT_TRUE(selection);
  EXPECT_FALSE(selection->partial);
  ASSERT_FALSE(selection->notes.empty());
  EXPECT_EQ(selection->notes[0].text,
            "weights taken from the fp32 masters (1 parameters); 1 without a master taken as stored");
}

TEST(Select, WeightsMasterOfACheckpointWithoutMastersIsNotAllDone) {
  Map map;
  map.tensors = {weight("w")};
  EXPECT_TRUE(select(map, {.only = {"weights"}, .weights = WeightsFrom::master})->partial);
}

TEST(Select, OptimTakesSlotsAndTheOptimizersObjects) {
  const auto selection = select(trained(), {.only = {"optim"}});
  ASSERT_TRUE(selection);
  EXPECT_EQ(names(*selection), (Names{"optimizer.state.w.master", "optimizer.state.w.exp_avg"}));
  ASSERT_EQ(selection->objects.size(), 1u);
  EXPECT_EQ(selection->objects[0].name, "optimizer.param_groups");
}

TEST(Select, CastsFloatingWeightsButNeverSlotsOrIntegers) {
  const auto selection = select(trained(), {.dtype = Dtype::f16});
  ASSERT_TRUE(selection);
  EXPECT_EQ(selection->tensors[0].dtype, Dtype::f16);
  EXPECT_EQ(selection->tensors[2].dtype, Dtype::f32);
  EXPECT_EQ(selection->tensors[4].dtype, Dtype::i64);
}

TEST(Select, PrefixesRenameWeightsAndTheParametersOfSlots) {
  Map map;
  map.tensors = {weight("model.w"), slot("model.w", "exp_avg")};
  const auto selection = select(map, {.strip_prefix = "model.", .add_prefix = "net."});
  ASSERT_TRUE(selection);
  EXPECT_EQ(names(*selection), (Names{"net.w", "optimizer.state.net.w.exp_avg"}));
  EXPECT_TRUE(select(map, {.strip_prefix = "absent."})->partial);
}

TEST(Select, AWrapperAtTheRootIsDroppedForWeightsOfNestedStateOnly) {
  Map map;
  map.nested = true;
  map.tensors = {weight("model.w"), slot("w", "exp_avg")};
  EXPECT_EQ(names(*select(map, {.only = {"weights"}})), Names{"w"});
  EXPECT_EQ(names(*select(map, {})), (Names{"model.w", "optimizer.state.w.exp_avg"}));
  map.tensors.pop_back();  // `model` alone may be the model's own module
  EXPECT_EQ(names(*select(map, {.only = {"weights"}})), Names{"model.w"});
  map.tensors = {weight("state_dict.w")};
  EXPECT_EQ(names(*select(map, {.only = {"weights"}})), Names{"w"});
  map.nested = false;
  EXPECT_EQ(names(*select(map, {.only = {"weights"}})), Names{"state_dict.w"});
}

TEST(Select, GlobsThatMatchNothingAreTold) {
  const auto selection = select(trained(), {.only = {"w", "nothing.*"}});
  ASSERT_TRUE(selection);
  EXPECT_TRUE(selection->partial);
  EXPECT_EQ(names(*selection), Names{"w"});
  EXPECT_EQ(select(trained(), {.only = {"nothing.*"}}).error().code, Errc::not_found);
}

TEST(Select, NoTensorLosesItsWholeName) {
  Map map;
  map.tensors = {weight("model."), weight("model.w")};
  const auto selection = select(map, {.source = "here", .strip_prefix = "model."});
  ASSERT_FALSE(selection);
  EXPECT_EQ(selection.error().code, Errc::usage);
  EXPECT_EQ(selection.error().message, "here: --strip-prefix would leave an empty name for 'model.'");
}

TEST(Select, TwoTensorsNeverGetOneName) {
  Map map;
  map.tensors = {weight("a.w"), weight("w")};
  EXPECT_EQ(select(map, {.strip_prefix = "a."}).error().code, Errc::usage);
}

TEST(Glob, MatchesAsShellsDo) {
  EXPECT_TRUE(matches_glob("model.layers.10.mlp.up", "model.layers.*.mlp.*"));
  EXPECT_TRUE(matches_glob("abc", "a?c"));
  EXPECT_TRUE(matches_glob("a1c", "a[0-9]c"));
  EXPECT_FALSE(matches_glob("axc", "a[0-9]c"));
  EXPECT_TRUE(matches_glob("axc", "a[!0-9]c"));
  EXPECT_FALSE(matches_glob("ab", "a"));
  EXPECT_TRUE(matches_glob("", "*"));
  EXPECT_TRUE(matches_glob("a[b", "a[b"));
  EXPECT_TRUE(matches_glob("aaaaaaaaaaaaaaaaaaaaaaaaab", "*a*a*a*a*a*b"));
}

}  // namespace
}  // namespace ckpt
