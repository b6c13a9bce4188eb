#include "convert/deepspeed/model_parallel/pipeline_stages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace ckpt::deepspeed {
namespace {

using Shapes = std::vector<Shape>;

std::vector<UnnamedGroup> one_group(const Shapes& shapes) {
  UnnamedGroup group;
  for (const Shape& shape : shapes) group.shapes.emplace_back(shape);
  return {group};
}

/// The optimizer of each stage, from what its module holds.
std::vector<std::vector<UnnamedGroup>> optimizers(const std::vector<LayerShapes>& layers, const StageModules& modules) {
  std::vector<std::vector<UnnamedGroup>> out;
  for (const auto& module : modules) {
    Shapes shapes;
    for (const auto& [layer, tensor] : module) shapes.push_back(layers[layer].shapes[tensor]);
    out.push_back(one_group(shapes));
  }
  return out;
}

/// A language model: embedding, equal blocks, a norm; the head is the embedding again.
std::vector<LayerShapes> language_model(std::size_t blocks) {
  std::vector<LayerShapes> layers{{{{101, 8}}}};
  for (std::size_t i = 0; i < blocks; ++i) layers.push_back({{{8, 8}, {8}, {32, 8}, {8, 32}}});
  layers.push_back({{{8}, {8}}});
  return layers;
}

void put(std::vector<StageParameter>& module, const std::vector<LayerShapes>& layers, std::size_t layer) {
  for (std::size_t t = 0; t < layers[layer].shapes.size(); ++t) module.push_back({layer, t});
}

TEST(PipelineStages, EveryDivisionOfAModelWithATiedHeadIsFound) {
  const auto layers = language_model(5);
  for (std::size_t first = 1; first + 1 < layers.size(); ++first) {
    for (std::size_t second = first + 1; second < layers.size(); ++second) {
      StageModules modules(3);
      for (std::size_t l = 0; l < first; ++l) put(modules[0], layers, l);
      for (std::size_t l = first; l < second; ++l) put(modules[1], layers, l);
      put(modules[2], layers, 0);
      for (std::size_t l = second; l < layers.size(); ++l) put(modules[2], layers, l);
      const auto found = assign_layers(layers, optimizers(layers, modules));
      ASSERT_TRUE(found.has_value()) << first << " " << second;
      EXPECT_TRUE(*found == modules) << first << " " << second;
    }
  }
}

TEST(PipelineStages, WithoutTiesEqualLayersAreDividedByTheirNumber) {
  const auto layers = language_model(6);
  StageModules modules(2);
  for (std::size_t l = 0; l < 3; ++l) put(modules[0], layers, l);
  for (std::size_t l = 3; l < layers.size(); ++l) put(modules[1], layers, l);
  EXPECT_TRUE(assign_layers(layers, optimizers(layers, modules)) == std::optional(modules));
}

TEST(PipelineStages, TwoTiedLayersAreFound) {
  std::vector<LayerShapes> layers{{{{11, 4}}}, {{{7, 4}}}, {{{4, 4}}}, {{{4, 5}}}};
  StageModules modules(2);
  put(modules[0], layers, 0);
  put(modules[0], layers, 1);
  put(modules[0], layers, 2);
  for (const std::size_t l : {1u, 0u, 3u}) put(modules[1], layers, l);
  EXPECT_TRUE(assign_layers(layers, optimizers(layers, modules)) == std::optional(modules));
}

TEST(PipelineStages, FlatGroupsAreDividedByTheirElements) {
  const std::vector<LayerShapes> layers{{{{5, 3}, {5}}}, {{{7, 5}}}, {{{2}}}};
  std::vector<std::vector<UnnamedGroup>> stages(2);
  stages[0].push_back({.flat_elements = 20});
  stages[1].push_back({.flat_elements = 37});
  StageModules modules(2);
  put(modules[0], layers, 0);
  put(modules[1], layers, 1);
  put(modules[1], layers, 2);
  EXPECT_TRUE(assign_layers(layers, stages) == std::optional(modules));
}

TEST(PipelineStages, WhatFitsInTwoWaysIsNotGuessed) {
  // Two layers of one shape, either of which the second stage may share.
  const std::vector<LayerShapes> layers{{{{4, 4}}}, {{{4, 4}}}, {{{3}}}};
  const std::vector<std::vector<UnnamedGroup>> stages{one_group({{4, 4}, {4, 4}}), one_group({{4, 4}, {3}})};
  EXPECT_FALSE(assign_layers(layers, stages).has_value());
}

TEST(PipelineStages, WhatDoesNotFitIsNotGuessed) {
  const auto layers = language_model(2);
  StageModules modules(2);
  put(modules[0], layers, 0);
  for (std::size_t l = 1; l < layers.size(); ++l) put(modules[1], layers, l);
  const auto whole = optimizers(layers, modules);
  auto frozen = whole;
  frozen[1][0].shapes.pop_back();
  EXPECT_FALSE(assign_layers(layers, frozen).has_value());
  auto unknown = whole;
  unknown[0][0].shapes[0].reset();
  EXPECT_FALSE(assign_layers(layers, unknown).has_value());
  auto reordered = whole;
  std::swap(reordered[1][0].shapes[0], reordered[1][0].shapes[1]);
  EXPECT_FALSE(assign_layers(layers, reordered).has_value());
}

TEST(PipelineStages, ManyDivisionsOfEqualLayersEnd) {
  // Stages of two equal layers each, of which one may be shared: the number of ways doubles with every stage.
  const std::vector<LayerShapes> layers(400, LayerShapes{{{2}}});
  const std::vector<std::vector<UnnamedGroup>> stages(300, one_group({{2}, {2}}));
  EXPECT_FALSE(assign_layers(layers, stages).has_value());
}

}  // namespace
}  // namespace ckpt::deepspeed
