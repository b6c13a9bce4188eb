#include "convert/optimizer_roles.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ckpt {
namespace {

/// The tensors of these names, with roles; paths are empty unless given for the last.
std::vector<Tensor> roles(const std::vector<std::string>& names, Path last_path = {}) {
  std::vector<Tensor> tensors;
  for (const std::string& name : names) tensors.push_back({.name = name});
  std::vector<Path> paths(names.size());
  paths.back() = std::move(last_path);
  assign_roles(tensors, paths);
  return tensors;
}
Tensor last(const std::vector<std::string>& names, Path path = {}) {
  return roles(names, std::move(path)).back();
}

void expect_slot(const Tensor& tensor, const std::string& parameter, const std::string& slot) {
  EXPECT_EQ(tensor.role, Role::slot) << tensor.name;
  EXPECT_EQ(tensor.parameter, parameter) << tensor.name;
  EXPECT_EQ(tensor.slot, slot) << tensor.name;
}

TEST(OptimizerRoles, ParameterIsTheWeightThatEndsInItsText) {
  expect_slot(last({"model.a.w", "optimizer.state.a.w.exp_avg"}), "model.a.w", "exp_avg");
  expect_slot(last({"app.model.a.w", "app.optim.state.a.w.exp_avg"}), "app.model.a.w", "exp_avg");
  expect_slot(last({"a.w", "optimizer.state.a.w.exp_avg"}), "a.w", "exp_avg");
  expect_slot(last({"model.w", "optimizers.0.state.w.step"}), "model.w", "step");
}

TEST(OptimizerRoles, WithoutAWeightTheTextIsKept) {
  expect_slot(last({"model.b", "optimizer.state.a.w.exp_avg"}), "a.w", "exp_avg");
  expect_slot(last({"optimizer.state.0.momentum_buffer"}), "0", "momentum_buffer");
}

TEST(OptimizerRoles, TheModelComesBeforeItsAverageAndTwoModelsAreLeftOpen) {
  expect_slot(last({"ema.w", "model.w", "optimizer.state.w.exp_avg"}), "model.w", "exp_avg");
  expect_slot(last({"model.w", "ema.w", "w", "optimizer.state.w.exp_avg"}), "w", "exp_avg");
  expect_slot(last({"actor.w", "critic.w", "optimizer.state.w.exp_avg"}), "w", "exp_avg");
}

TEST(OptimizerRoles, ThePathTellsWhereTheParameterEnds) {
  expect_slot(last({"optimizer.state.a.w.shampoo.0"}, {"optimizer", "state", "a.w", "shampoo", std::int64_t{0}}), "a.w",
              "shampoo.0");
  expect_slot(last({"optimizer.state.a.w.exp_avg"}, {"optimizer", "state.a.w.exp_avg"}), "a.w", "exp_avg");
}

TEST(OptimizerRoles, OtherTensorsOfAnOptimizerHaveNoParameter) {
  expect_slot(last({"model.w", "optimizer.param_groups.0.lr"}), "", "param_groups.0.lr");
}

TEST(OptimizerRoles, StateAtTheRootCountsOnlyWithAKnownSlot) {
  expect_slot(last({"model.w", "state.w.exp_avg_sq"}), "model.w", "exp_avg_sq");
  EXPECT_EQ(last({"state.layer.weight"}).role, Role::param);
}

TEST(OptimizerRoles, WeightsAndBlobsStayWhatTheyAre) {
  EXPECT_EQ(last({"model.state.exp_avg"}).role, Role::param);
  EXPECT_EQ(last({"lr_scheduler.step"}).role, Role::param);
  std::vector<Tensor> tensors{{.name = "optimizer.state.w.step", .role = Role::blob}};
  assign_roles(tensors, {Path{}});
  EXPECT_EQ(tensors[0].role, Role::blob);
}

}  // namespace
}  // namespace ckpt
