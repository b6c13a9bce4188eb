#include "format/model/training_state.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "convert/open_source.hpp"
#include "support/golden.hpp"

namespace ckpt {
namespace {

Map golden_map(const std::string& path, const std::string& from = "") {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  auto source = open_source(**io, path, from, {});
  EXPECT_TRUE(source.has_value()) << source.error().message;
  return source ? std::move(source->map) : Map{};
}

TrainingState state_of(const Map& map) {
  const auto items = all_items(map);
  return training_state({.map = &map, .items = items, .aliases = map.aliases, .objects = map.objects});
}

/// The entry of that name, or null.
const ModelTensor* find(const TrainingState& state, std::string_view name) {
  const auto at = std::ranges::find(state.model, name, &ModelTensor::name);
  return at == state.model.end() ? nullptr : &*at;
}

std::string names_of(const TrainingState& state, const std::vector<std::size_t>& members) {
  std::string out;
  for (const std::size_t member : members) out += (out.empty() ? "" : " ") + state.model[member].name;
  return out;
}

const Value* option(const ParameterGroup& group, std::string_view name) {
  for (const auto& [key, value] : group.options) {
    if (key == name) return &value;
  }
  return nullptr;
}

double real(const Value* value) {
  const auto* number = value != nullptr ? std::get_if<double>(&value->v) : nullptr;
  return number != nullptr ? *number : -1;
}

/// What a golden checkpoint's state is, by the script that made it.
struct Expected {
  const char* path;
  const char* wrapper;
  std::size_t trained;
  std::size_t frozen;
  std::size_t buffers;
  std::size_t ties;
  std::vector<std::size_t> groups;  ///< members of each
  std::int64_t steps;               ///< -1: none stored
  bool masters;
  std::size_t step_kind;  ///< index of StepPlace: 1 a tensor, 2 a number
};

void PrintTo(const Expected& expected, std::ostream* out) {
  *out << expected.path;
}

class TrainingStateGolden : public testing::TestWithParam<Expected> {};

TEST_P(TrainingStateGolden, EverySpellingOfOptimizerStateIsUnderstood) {
  const Expected& expected = GetParam();
  const Map map = golden_map(golden_root("torch/dcp_plain") + "/../../../" + expected.path);
  const TrainingState state = state_of(map);
  EXPECT_EQ(state.wrapper, expected.wrapper);
  EXPECT_TRUE(state.unplaced.empty()) << state.unplaced_reason;
  EXPECT_TRUE(state.has_group_options);
  EXPECT_EQ(state.ties.size(), expected.ties);
  EXPECT_EQ(state.counters.steps.value_or(-1), expected.steps);
  std::vector<std::size_t> groups;
  for (const ParameterGroup& group : state.groups) {
    groups.push_back(group.members.size());
    EXPECT_GT(real(option(group, "lr")), 0);
    const Value* betas = option(group, "betas");
    ASSERT_NE(betas, nullptr);
    EXPECT_EQ(std::get<List>(betas->v).kind, List::Kind::tuple);
    EXPECT_EQ(option(group, "params"), nullptr);
  }
  EXPECT_EQ(groups, expected.groups);
  std::size_t trained = 0;
  std::size_t frozen = 0;
  std::size_t buffers = 0;
  for (const ModelTensor& entry : state.model) {
    SCOPED_TRACE(entry.name);
    trained += entry.kind == ModelTensor::Kind::trained ? 1 : 0;
    frozen += entry.kind == ModelTensor::Kind::frozen ? 1 : 0;
    buffers += entry.kind == ModelTensor::Kind::buffer ? 1 : 0;
    ASSERT_TRUE(entry.tensor.has_value());
    EXPECT_EQ(state.wrapper + entry.name, map.tensors[*entry.tensor].name);
    if (entry.kind != ModelTensor::Kind::trained) {
      EXPECT_FALSE(entry.group.has_value());
      continue;
    }
    ASSERT_TRUE(entry.group.has_value());
    EXPECT_EQ(entry.master.has_value(), expected.masters);
    EXPECT_EQ(entry.step.index(), expected.step_kind);
    ASSERT_EQ(entry.slots.size(), 2u);
    EXPECT_EQ(entry.slots[0].name, "exp_avg");
    EXPECT_EQ(entry.slots[1].name, "exp_avg_sq");
    for (const StateSlot& slot : entry.slots) {
      const Tensor& tensor = map.tensors[slot.tensor];
      EXPECT_EQ(tensor.shape, entry.shape);
      EXPECT_EQ(tensor.slot, slot.name);
      if (!tensor.parameter.empty()) {
        EXPECT_EQ(tensor.parameter, map.tensors[*entry.tensor].name);
      }
    }
  }
  EXPECT_EQ(trained, expected.trained);
  EXPECT_EQ(frozen, expected.frozen);
  EXPECT_EQ(buffers, expected.buffers);
}

INSTANTIATE_TEST_SUITE_P(
    Golden, TrainingStateGolden,
    testing::Values(Expected{"deepspeed/bf16opt_dp2/ckpt", "", 10, 0, 0, 0, {4, 6}, 3, true, 2},
                    Expected{"deepspeed/zero2_bf16_dp4/ckpt", "", 10, 0, 0, 1, {4, 6}, 3, true, 2},
                    Expected{"deepspeed/zero3_bf16_dp3_frozen/ckpt", "", 9, 3, 0, 0, {4, 5}, 3, true, 2},
                    Expected{"deepspeed/zero0_bf16_dp1_groups_frozen/ckpt", "", 9, 3, 0, 0, {4, 5}, 3, true, 1},
                    Expected{"deepspeed/zero0_fp32_dp2/ckpt", "", 10, 0, 0, 0, {10}, 3, true, 1},
                    Expected{"deepspeed/zero2_fp32_dp3_frozen/ckpt", "", 6, 3, 4, 0, {5, 1}, 3, true, 2},
                    Expected{"deepspeed/zero1_fp16_dp2/ckpt", "", 10, 0, 0, 0, {10}, 3, true, 2},
                    Expected{"deepspeed/universal_from_zero2_bf16_dp4/ckpt", "", 10, 0, 0, 1, {4, 6}, 3, true, 2},
                    Expected{"deepspeed/universal_from_zero3_bf16_dp4/ckpt", "", 10, 0, 0, 0, {4, 6}, 3, true, 2},
                    Expected{"deepspeed/tp2_dp2_zero1_fp32/ckpt", "", 8, 0, 0, 0, {8}, 2, true, 2},
                    Expected{"torch/fsdp1_full/ckpt", "model.", 8, 0, 0, 0, {8}, -1, false, 1},
                    Expected{"torch/fsdp1_sharded/ckpt", "model.", 8, 0, 0, 0, {8}, -1, false, 1},
                    Expected{"torch/fsdp2_flat_optim/ckpt", "model.", 8, 0, 1, 0, {8}, -1, false, 1},
                    Expected{"torch/fsdp2_nested_optim/ckpt", "model.", 8, 0, 1, 0, {8}, -1, false, 1},
                    Expected{"torch/pt_trainer/ckpt/last.ckpt", "state_dict.", 8, 0, 0, 0, {4, 4}, 3, false, 1}));

TEST(TrainingState, MembersAreInTheOptimizersOrder) {
  const Map map = golden_map(golden_root("deepspeed/zero2_bf16_dp4"));
  const TrainingState state = state_of(map);
  ASSERT_EQ(state.groups.size(), 2u);
  EXPECT_EQ(names_of(state, state.groups[0].members), "wte.weight h.0.fc.weight h.0.proj.weight gate.weight");
  EXPECT_EQ(real(option(state.groups[0], "weight_decay")), 0.01);
  EXPECT_EQ(real(option(state.groups[1], "weight_decay")), 0.0);
  ASSERT_EQ(state.ties.size(), 1u);
  EXPECT_EQ(state.ties[0].name, "lm_head.weight");
  EXPECT_EQ(state.ties[0].target, "wte.weight");
  const auto* step = std::get_if<Value>(&state.model[0].step);
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(std::get<double>(step->v), 3.0);
}

TEST(TrainingState, NumbersBecomeNamesByOrderAndShape) {
  const Map map = golden_map(golden_root("torch/pt_trainer") + "/last.ckpt");
  const TrainingState state = state_of(map);
  ASSERT_EQ(state.groups.size(), 2u);
  EXPECT_EQ(names_of(state, state.groups[0].members),
            "model.emb.weight model.blk.0.up.weight model.blk.0.down.weight model.head.weight");
  EXPECT_EQ(names_of(state, state.groups[1].members),
            "model.blk.0.ln.weight model.blk.0.ln.bias model.blk.0.up.bias model.blk.0.down.bias");
  const ModelTensor* up = find(state, "model.blk.0.up.weight");
  ASSERT_NE(up, nullptr);
  EXPECT_EQ(map.tensors[up->slots[0].tensor].name, "optimizer_states.0.state.1.exp_avg");
  EXPECT_TRUE(state.scheduler.has_value());
}

TEST(TrainingState, TwoOptimizersAreNotGuessedAt) {
  const Map map = golden_map(golden_root("torch/pt_trainer"));
  const TrainingState state = state_of(map);
  EXPECT_EQ(state.unplaced.size(), 48u);
  EXPECT_EQ(state.unplaced_reason, "found 2 optimizers (optimizer, optimizer_states.0)");
  EXPECT_TRUE(state.groups.empty());
}

/// The same without last.ckpt: a folder of a trainer, a file for each part.
TEST(TrainingState, AFolderOfFilesIsOneState) {
  Map map = golden_map(golden_root("torch/pt_trainer"));
  const auto is_of_last = [](const std::string& name) {
    return name.find('/') == std::string::npos && !name.starts_with("optimizer.") && !name.starts_with("scheduler");
  };
  std::erase_if(map.objects, [&](const NamedObject& object) { return is_of_last(object.name); });
  std::vector<StateItem> items = all_items(map);
  std::erase_if(items, [&](const StateItem& item) { return is_of_last(item.name); });
  const TrainingState state = training_state({.map = &map, .items = items, .objects = map.objects});
  EXPECT_EQ(state.wrapper, "pytorch_model.bin/");
  EXPECT_TRUE(state.unplaced.empty()) << state.unplaced_reason;
  ASSERT_EQ(state.groups.size(), 2u);
  EXPECT_EQ(names_of(state, state.groups[0].members), "emb.weight blk.0.up.weight blk.0.down.weight head.weight");
  EXPECT_TRUE(state.scheduler.has_value());
}

TEST(TrainingState, LossScaleIsReadFromEachForm) {
  const Map dynamic = golden_map(golden_root("deepspeed/zero1_fp16_dp2"));
  const TrainingState fp16 = state_of(dynamic);
  ASSERT_TRUE(fp16.loss_scale.has_value());
  EXPECT_TRUE(fp16.loss_scale->dynamic);
  EXPECT_EQ(fp16.loss_scale->scale, 256);
  EXPECT_EQ(fp16.loss_scale->iteration, 3);
  EXPECT_EQ(fp16.loss_scale->last_overflow, -1);
  const Map early = golden_map(golden_root("deepspeed/zero2_fp16_dp2_v07"));  // says so by its class alone
  const TrainingState fp16_of_07 = state_of(early);
  ASSERT_TRUE(fp16_of_07.loss_scale.has_value());
  EXPECT_TRUE(fp16_of_07.loss_scale->dynamic);
  EXPECT_EQ(fp16_of_07.loss_scale->scale, 512);
  for (const Finding& finding : early.findings)
    EXPECT_EQ(finding.text.find("different saves"), std::string::npos) << finding.text;
  const Map whole = golden_map(golden_root("deepspeed/zero0_bf16_dp2"));
  const TrainingState zero0 = state_of(whole);
  ASSERT_TRUE(zero0.loss_scale.has_value());
  EXPECT_FALSE(zero0.loss_scale->dynamic);
  EXPECT_EQ(zero0.loss_scale->scale, 1);
}

/// A map without files, for what no golden checkpoint has.
struct Made {
  Map map{};

  void tensor(std::string name, Path path, Shape shape, Role role = Role::param, std::string slot = {},
              Dtype dtype = Dtype::f32) {
    map.tensors.push_back({.name = std::move(name),
                           .path = std::move(path),
                           .dtype = dtype,
                           .shape = std::move(shape),
                           .role = role,
                           .slot = std::move(slot)});
  }
  template <class T>
  void object(std::string name, Path path, T value) {
    Value out;
    out.v = std::move(value);
    map.objects.push_back({std::move(name), std::move(path), std::move(out)});
  }
  void numbered(std::int64_t index, Shape shape) {
    const std::string number = std::to_string(index);
    tensor("optimizer.state." + number + ".exp_avg", {"optimizer", "state", index, "exp_avg"}, std::move(shape),
           Role::slot, "exp_avg");
    object("optimizer.param_groups.0.params." + number, {"optimizer", "param_groups", std::int64_t{0}, "params", index},
           index);
  }
};

TEST(TrainingState, NumbersThatFitTwoOrdersAreRefusedToBeNamed) {
  Made made{.map = {.nested = true, .module_order = true}};
  for (const char* name : {"a", "b", "c"}) made.tensor(std::string("model.") + name, {}, {4});
  made.numbered(0, {4});
  made.numbered(1, {4});
  const TrainingState state = state_of(made.map);
  EXPECT_EQ(state.unplaced.size(), 2u);
  EXPECT_EQ(state.unplaced_reason,
            "the optimizer numbers its parameters, and their shapes and order do not identify them");
}

TEST(TrainingState, MembersWithoutStateThatFitTwoOrdersAreToldToo) {
  Made made{.map = {.nested = true, .module_order = true}};
  for (const char* name : {"a", "b"}) made.tensor(std::string("model.") + name, {}, {4});
  made.object("optimizer.param_groups.0.lr", {"optimizer", "param_groups", std::int64_t{0}, "lr"}, 0.5);
  made.object("optimizer.param_groups.0.params.0",
              {"optimizer", "param_groups", std::int64_t{0}, "params", std::int64_t{0}}, std::int64_t{0});
  const TrainingState state = state_of(made.map);
  EXPECT_TRUE(state.unplaced.empty());
  EXPECT_NE(state.unplaced_reason, "");
}

// An optimizer that was built in another order would get the state of other parameters: nothing else in the files tells.
TEST(TrainingState, NumbersThatOnlyTheModelsOrderNamesAreTold) {
  const auto notes = [](std::vector<Shape> shapes) {
    Made made{.map = {.nested = true, .module_order = true}};
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      made.tensor("model.w" + std::to_string(shapes.size() - i), {}, shapes[i]);
      made.numbered(static_cast<std::int64_t>(i), shapes[i]);
    }
    const TrainingState state = state_of(made.map);
    EXPECT_TRUE(state.unplaced.empty());
    std::string out;
    for (const Finding& note : state.notes) out += note.text;
    return out;
  };
  EXPECT_NE(notes({{4}, {4}}).find("taken in the model's order"), std::string::npos);
  EXPECT_EQ(notes({{4}, {5}}), "");  // their shapes name them
}

// optimizer.param_groups.model.w.betas of get_optimizer_state_dict(flatten_optimizer_state_dict=True), whose tuple a torch file
// has as two leaves.
TEST(TrainingState, OptionsByParameterMayBeOfSeveralValues) {
  Made made{.map = {.nested = true}};
  for (const std::string name : {"a.w", "b"}) {
    made.tensor("model." + name, {"model", name}, {4});
    made.tensor("optimizer.state." + name + ".exp_avg", {"optimizer", "state." + name + ".exp_avg"}, {4}, Role::slot,
                "exp_avg");
    made.map.tensors.back().parameter = "model." + name;
    const std::string group = "param_groups." + name + ".";
    made.object("optimizer." + group + "betas.0", {"optimizer", group + "betas", std::int64_t{0}}, 0.9);
    made.object("optimizer." + group + "betas.1", {"optimizer", group + "betas", std::int64_t{1}}, 0.999);
    made.object("optimizer." + group + "lr", {"optimizer", group + "lr"}, 0.5);
  }
  const TrainingState state = state_of(made.map);
  ASSERT_EQ(state.groups.size(), 1u);
  EXPECT_EQ(state.groups[0].members.size(), 2u);
  ASSERT_EQ(state.groups[0].options.size(), 2u);
  const auto* betas = std::get_if<List>(&option(state.groups[0], "betas")->v);
  ASSERT_NE(betas, nullptr);
  EXPECT_EQ(betas->kind, List::Kind::tuple);
  ASSERT_EQ(betas->items.size(), 2u);
  EXPECT_EQ(std::get<double>(betas->items[1]->v), 0.999);
}

TEST(TrainingState, AnOptionMayBeATensor) {
  Made made{.map = {.nested = true, .module_order = true}};
  made.tensor("model.a", {}, {4});
  made.numbered(0, {4});
  const Path path{"optimizer", "param_groups", std::int64_t{0}, "lr"};
  made.tensor("optimizer.param_groups.0.lr", path, {}, Role::slot, "");
  const TrainingState state = state_of(made.map);
  ASSERT_EQ(state.groups.size(), 1u);
  const Value* lr = option(state.groups[0], "lr");
  ASSERT_NE(lr, nullptr);
  ASSERT_NE(std::get_if<TensorRef>(&lr->v), nullptr);
  EXPECT_EQ(std::get<TensorRef>(lr->v).name, "optimizer.param_groups.0.lr");
  EXPECT_TRUE(state.loose.empty());
}

// A safetensors file holds 12 equal layers as 0, 1, 10, 11, 2, ...: in that order each would get another's state, and so
// it would from a file of torch.save with the content of a safetensors file.
TEST(TrainingState, NumbersAreNotNamedByTheOrderOfSortedNames) {
  const std::vector<std::string> sorted{"0", "1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9"};
  std::vector<std::string> in_order;
  for (int i = 0; i < 12; ++i) in_order.push_back(std::to_string(i));
  const auto state = [](const std::vector<std::string>& names, bool module_order, std::vector<std::string> given = {}) {
    Made made{.map = {.module_order = module_order, .parameter_order = std::move(given)}};
    for (const std::string& name : names) made.tensor(name, {}, {4});
    for (std::int64_t i = 0; i < 12; ++i) made.numbered(i, {4});
    return state_of(made.map);
  };
  EXPECT_EQ(state(in_order, true).unplaced.size(), 0u);
  EXPECT_EQ(state(in_order, false).unplaced.size(), 12u);
  EXPECT_EQ(state(sorted, true).unplaced.size(), 12u);
  EXPECT_EQ(state(sorted, false).unplaced_reason,
            "the optimizer numbers its parameters in the order of the model, which the source does not record");
  const TrainingState given = state(sorted, false, in_order);
  EXPECT_EQ(given.unplaced.size(), 0u);
  ASSERT_EQ(given.groups.size(), 1u);
  EXPECT_EQ(names_of(given, given.groups[0].members), "0 1 2 3 4 5 6 7 8 9 10 11");
  EXPECT_FALSE(given.order_is_missing);
  in_order.pop_back();
  EXPECT_EQ(
      state(sorted, false, in_order).unplaced_reason,
      "the optimizer numbers its parameters, and the listed ones do not match its groups and shapes, or match them in several ways");
}

TEST(TrainingState, ListedNamesMayLackTheWrapperOrBeTied) {
  Made made{.map = {.nested = true, .parameter_order = {"head", "a"}}};
  made.tensor("model.a", {}, {4});
  made.tensor("model.emb", {}, {4});
  made.map.aliases.push_back({.name = "model.head", .target = "model.emb"});
  made.numbered(0, {4});
  made.numbered(1, {4});
  const TrainingState state = state_of(made.map);
  ASSERT_EQ(state.groups.size(), 1u) << state.unplaced_reason;
  EXPECT_EQ(names_of(state, state.groups[0].members), "emb a");
}

TEST(TrainingState, WeightsAloneAreInTheOrderOfTheModelOnlyWhereItIsKnown) {
  for (const bool given : {false, true}) {
    Made made;
    for (const char* name : {"a.bias", "a.weight", "b.bias", "b.weight", "count"}) made.tensor(name, {}, {4});
    if (given) made.map.parameter_order = {"b.weight", "b.bias", "a.weight", "a.bias"};
    const TrainingState state = state_of(made.map);
    ASSERT_EQ(state.groups.size(), 1u);
    EXPECT_EQ(state.order_is_missing, !given);
    EXPECT_EQ(names_of(state, state.groups[0].members),
              given ? "b.weight b.bias a.weight a.bias" : "a.bias a.weight b.bias b.weight count");
  }
}

TEST(TrainingState, NumbersAreNamedByShapesThatOccurOnceWhereTheOrderIsUnknown) {
  Made made;
  made.tensor("b", {}, {2});
  made.tensor("a", {}, {3});
  made.numbered(0, {3});
  made.numbered(1, {2});
  const TrainingState state = state_of(made.map);
  EXPECT_TRUE(state.unplaced.empty());
  ASSERT_NE(find(state, "a"), nullptr);
  ASSERT_EQ(find(state, "a")->slots.size(), 1u);
  EXPECT_EQ(made.map.tensors[find(state, "a")->slots[0].tensor].name, "optimizer.state.0.exp_avg");
}

TEST(TrainingState, NamesOfNumberedParametersAreTakenFromTheGroups) {
  Made made{.map = {.nested = true, .module_order = true}};
  for (const char* name : {"a", "b", "c"}) made.tensor(std::string("model.") + name, {}, {4});
  made.numbered(0, {4});
  made.numbered(1, {4});
  made.object("optimizer.param_groups.0.param_names.0", {}, std::string("c"));
  made.object("optimizer.param_groups.0.param_names.1", {}, std::string("a"));
  const TrainingState state = state_of(made.map);
  EXPECT_TRUE(state.unplaced.empty()) << state.unplaced_reason;
  ASSERT_EQ(state.groups.size(), 1u);
  EXPECT_EQ(names_of(state, state.groups[0].members), "c a");
  EXPECT_EQ(made.map.tensors[find(state, "c")->slots.at(0).tensor].name, "optimizer.state.0.exp_avg");
  EXPECT_EQ(find(state, "b")->kind, ModelTensor::Kind::buffer);  // by its name, which is no weight's
  EXPECT_FALSE(find(state, "b")->kind_is_known);
}

TEST(TrainingState, WeightsAloneAreTrainedAndUsualBuffersAreNot) {
  Made made;
  made.tensor("layer.weight", {}, {2, 2});
  made.tensor("norm.running_mean", {}, {2});
  made.tensor("norm.num_batches_tracked", {}, {}, Role::param, {}, Dtype::i64);
  const TrainingState state = state_of(made.map);
  EXPECT_FALSE(state.has_optimizer);
  EXPECT_EQ(state.wrapper, "");
  ASSERT_EQ(state.groups.size(), 1u);
  EXPECT_EQ(names_of(state, state.groups[0].members), "layer.weight");
  EXPECT_EQ(state.model[1].kind, ModelTensor::Kind::buffer);
  EXPECT_EQ(state.model[2].kind, ModelTensor::Kind::buffer);
}

TEST(TrainingState, WhatStandsBesideTheModelIsNoPartOfIt) {
  Made made{.map = {.nested = true}};
  made.tensor("model.a", {}, {4});
  made.tensor("model.b", {}, {4});
  made.tensor("rng_state", {}, {16}, Role::param, {}, Dtype::u8);
  made.object("epoch", {}, std::int64_t{7});
  made.object("scaler.scale", {}, 1024.0);
  made.object("scaler.growth_factor", {}, 2.0);
  made.object("scaler.growth_interval", {}, std::int64_t{500});
  made.object("scaler._growth_tracker", {}, std::int64_t{3});
  const TrainingState state = state_of(made.map);
  EXPECT_EQ(state.wrapper, "model.");
  EXPECT_EQ(state.model.size(), 2u);
  ASSERT_EQ(state.loose.size(), 1u);
  EXPECT_EQ(made.map.tensors[state.loose[0]].name, "rng_state");
  EXPECT_EQ(state.counters.epoch, 7);
  ASSERT_TRUE(state.loss_scale.has_value());
  EXPECT_EQ(state.loss_scale->scale, 1024);
  EXPECT_EQ(state.loss_scale->window, 500);
  EXPECT_EQ(state.loss_scale->iteration - state.loss_scale->last_overflow - 1, 3);
}

}  // namespace
}  // namespace ckpt
