#include "convert/deepspeed/files/objects.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "convert/formats.hpp"
#include "format/model/same_value.hpp"
#include "support/golden.hpp"

namespace ckpt {
namespace {

Map open_deepspeed(const std::string& name) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  auto map = deepspeed_format().reader->open(**io, golden_root("deepspeed/" + name), {});
  EXPECT_TRUE(map.has_value()) << (map ? "" : map.error().message);
  return map ? *std::move(map) : Map{};
}

/// The value of an object; fails the test where there is none.
const Value& object(const Map& map, const std::string& name) {
  static const Value kNothing{};
  for (const NamedObject& found : map.objects) {
    if (found.name == name) return found.value;
  }
  ADD_FAILURE() << "no object " << name;
  return kNothing;
}

/// An item of a dict or list value, for reading what tests expect to be there.
const Value& at(const Value& value, const std::string& key) {
  static const Value kNothing{};
  if (const auto* dict = std::get_if<Dict>(&value.v)) {
    for (const auto& [name, item] : dict->items) {
      if (std::get_if<std::string>(&name->v) != nullptr && std::get<std::string>(name->v) == key) return *item;
    }
  }
  ADD_FAILURE() << "no key " << key;
  return kNothing;
}
const Value& at(const Value& value, std::size_t index) {
  static const Value kNothing{};
  const auto* list = std::get_if<List>(&value.v);
  if (list != nullptr && index < list->items.size()) return *list->items[index];
  ADD_FAILURE() << "no item " << index;
  return kNothing;
}

std::vector<std::string> texts(const Value& value) {
  std::vector<std::string> out;
  if (const auto* list = std::get_if<List>(&value.v)) {
    for (const ValuePtr& item : list->items) out.push_back(std::get<std::string>(item->v));
  }
  return out;
}

TEST(DeepSpeedObjects, ClientStateIsKeptUnderItsOwnKeys) {
  const Map map = open_deepspeed("zero2_fp32_dp3_frozen");
  EXPECT_EQ(std::get<std::int64_t>(object(map, "iteration").v), 5);
  EXPECT_EQ(std::get<std::int64_t>(object(map, "tokens").v), 123456789012);
  EXPECT_EQ(std::get<std::string>(object(map, "note").v), "two groups");
  EXPECT_EQ(std::get<std::int64_t>(object(map, "global_steps").v), 3);
  EXPECT_EQ(std::get<std::int64_t>(at(at(object(map, "ds_config"), "zero_optimization"), "stage").v), 2);
}

TEST(DeepSpeedObjects, ParameterGroupsNameTheirParameters) {
  const Map map = open_deepspeed("zero2_fp32_dp3_frozen");
  const Value& groups = object(map, "optimizer.param_groups");
  EXPECT_EQ(std::get<double>(at(at(groups, 0), "lr").v), 1e-3);
  EXPECT_EQ(std::get<double>(at(at(groups, 1), "lr").v), 5e-4);
  EXPECT_EQ(
      texts(at(at(groups, 0), "params")),
      (std::vector<std::string>{"wte.weight", "h.0.fc.weight", "h.0.proj.weight", "temp.value", "lm_head.weight"}));
  EXPECT_EQ(texts(at(at(groups, 1), "params")), (std::vector<std::string>{"h.0.fc.bias"}));
}

TEST(DeepSpeedObjects, StageThreeGroupsNameTheParametersOfAllTheirSubGroups) {
  const Map map = open_deepspeed("zero3_bf16_dp4");
  const Value& groups = object(map, "optimizer.param_groups");
  EXPECT_EQ(texts(at(at(groups, 0), "params")),
            (std::vector<std::string>{"wte.weight", "h.0.fc.weight", "h.0.proj.weight", "lm_head.weight"}));
  const Value& shared = object(map, "optimizer.group_state");
  EXPECT_EQ(std::get<List>(shared.v).items.size(), 3u);
  EXPECT_EQ(texts(at(at(shared, 0), "params")), (std::vector<std::string>{"wte.weight"}));
}

TEST(DeepSpeedObjects, GroupsAreInTheOptimizersOrderWhereRoundRobinGradientsLaidTheFlatTensorsOutInAnother) {
  const Map map = open_deepspeed("zero2_fp32_dp3_round_robin");
  const Value& groups = object(map, "optimizer.param_groups");
  EXPECT_EQ(
      texts(at(at(groups, 0), "params")),
      (std::vector<std::string>{"wte.weight", "h.0.ln.weight", "h.0.ln.bias", "h.0.fc.weight", "h.0.fc.bias",
                                "h.0.proj.weight", "h.0.proj.bias", "ln_f.weight", "ln_f.bias", "lm_head.weight"}));
}

TEST(DeepSpeedObjects, StepOfAGroupKeepsItsKind) {
  const Map tensor = open_deepspeed("zero2_bf16_dp4");
  EXPECT_EQ(std::get<double>(at(at(object(tensor, "optimizer.group_state"), 0), "step").v), 3.0);
  const Map whole = open_deepspeed("zero2_bf16_dp2_offload_cpu");
  EXPECT_EQ(std::get<std::int64_t>(at(at(object(whole, "optimizer.group_state"), 0), "step").v), 3);
  const Map elastic = open_deepspeed("zero2_fp32_dp3_elastic");
  EXPECT_EQ(std::get<double>(at(at(object(elastic, "optimizer.group_state"), 1), "step").v), 3.0);
}

TEST(DeepSpeedObjects, AnElasticCheckpointOfFusedAdamHasTheStepsOfItsState) {
  const Map map = open_deepspeed("zero1_dp2_elastic_fused");
  const Value& group = at(object(map, "optimizer.group_state"), 0);
  EXPECT_EQ(std::get<Dict>(group.v).items.size(), 2U);  // its step, once, and its parameters
  EXPECT_EQ(std::get<std::int64_t>(at(group, "step").v), 3);
  for (const Finding& finding : map.findings)
    EXPECT_FALSE(finding.text.find("has taken") != std::string::npos) << finding.text;
}

TEST(DeepSpeedObjects, StepOfAParameterIsItsOwnTensor) {
  const Map map = open_deepspeed("zero0_fp32_dp2");
  const Tensor& step = map.tensors[find_tensor(map, "optimizer.state.wte.weight.step")];
  EXPECT_EQ(step.parameter, "wte.weight");
  EXPECT_EQ(step.shape, Shape{});
  EXPECT_EQ(gather(map, golden_root("deepspeed/zero0_fp32_dp2"), find_tensor(map, step.name)).bytes,
            std::string("\0\0\x40\x40", 4));
}

TEST(DeepSpeedObjects, LossScalerKeepsItsClassAndFieldsWithoutItsPickle) {
  const Map map = open_deepspeed("zero1_fp16_dp2");
  const auto& scaler = std::get<Opaque>(object(map, "optimizer.loss_scaler").v);
  EXPECT_EQ(scaler.global, "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler");
  ASSERT_NE(scaler.state, nullptr);
  EXPECT_EQ(std::get<std::int64_t>(at(*scaler.state, "cur_scale").v), 256);
  for (const Tensor& tensor : map.tensors) EXPECT_NE(tensor.role, Role::blob) << tensor.name;
}

TEST(DeepSpeedObjects, HalfPrecisionStageZeroKeepsItsScalerUnderOptimizer) {
  const Map map = open_deepspeed("zero0_bf16_dp2");
  EXPECT_EQ(std::get<double>(object(map, "optimizer.cur_scale").v), 1.0);
  EXPECT_EQ(std::get<std::int64_t>(object(map, "optimizer.cur_iter").v), 3);
}

std::vector<NamedObject> one(std::int64_t value) {
  return {{"item", {}, Value{value}}};
}

TEST(RankObjects, WhatAllRanksShareIsKeptOnceAndWhatDiffersOnceARank) {
  deepspeed::RankObjects same;
  EXPECT_TRUE(same.add(0, one(7)));
  EXPECT_TRUE(same.add(1, one(7)));
  const auto once = same.take();
  ASSERT_EQ(once.size(), 1u);
  EXPECT_EQ(once[0].name, "item");

  deepspeed::RankObjects different;
  different.add(0, one(7));
  EXPECT_TRUE(different.add(1, one(7)));
  EXPECT_FALSE(different.add(2, one(8)));
  const auto each = different.take();
  ASSERT_EQ(each.size(), 3u);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(each[rank].name, "item@" + std::to_string(rank));
    EXPECT_EQ(std::get<std::int64_t>(each[rank].value.v), rank == 2 ? 8 : 7);
  }
}

TEST(RankObjects, WhatOneLaterRankAloneHoldsIsItsOwn) {
  deepspeed::RankObjects set;
  set.add(0, {});
  EXPECT_FALSE(set.add(1, one(7)));
  const auto objects = set.take();
  ASSERT_EQ(objects.size(), 1u);
  EXPECT_EQ(objects[0].name, "item@1");
}

TEST(SameValue, ComparesFloatsByTheirBitsAndDeepNestsWithoutRecursion) {
  EXPECT_FALSE(same_value(Value{0.0}, Value{-0.0}));
  EXPECT_TRUE(same_value(Value{std::nan("")}, Value{std::nan("")}));
  EXPECT_FALSE(same_value(Value{std::int64_t{1}}, Value{true}));
  const auto nest = [](std::int64_t leaf) {
    auto value = std::make_shared<Value>(Value{leaf});
    for (int i = 0; i < 500; ++i) value = std::make_shared<Value>(Value{List{.items = {value}}});
    return value;
  };
  EXPECT_TRUE(same_value(*nest(1), *nest(1)));
  EXPECT_FALSE(same_value(*nest(1), *nest(2)));
}

}  // namespace
}  // namespace ckpt
