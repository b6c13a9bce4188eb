// Gate and up halves of Megatron-LM that are stored apart.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convert/gated_halves.hpp"
#include "format/model/model.hpp"

namespace ckpt {
namespace {

const std::string kWeight = "decoder.layers.0.mlp.linear_fc1.weight";

Tensor weight(const std::string& name, Shape shape) {
  return {.name = name, .shape = std::move(shape)};
}

Tensor state(const std::string& of, Shape shape) {
  return {.name = "optimizer.state." + of + ".exp_avg",
          .shape = std::move(shape),
          .role = Role::slot,
          .parameter = of,
          .slot = "exp_avg"};
}

/// Each tensor is one chunk, at a multiple of 1000 of the file.
Map map_of(std::vector<Tensor> tensors) {
  Map map;
  map.files.push_back({.path = "data", .bytes = 1 << 20});
  auto table = std::make_shared<ChunkTable>(tensors.size());
  for (std::size_t t = 0; t < tensors.size(); ++t)
    table->add(t, tensors[t].shape, {.box = Box::whole(tensors[t].shape)}, {.offset = 1000 * t});
  table->seal();
  map.tensors = std::move(tensors);
  map.index = std::move(table);
  return map;
}

std::vector<std::string> names_of(const Map& map) {
  std::vector<std::string> out;
  for (const Tensor& tensor : map.tensors) out.push_back(tensor.name);
  return out;
}

TEST(GatedHalves, AreOneWeightAndOneState) {
  Map map = map_of({weight(kWeight + "_v", {4, 2}), weight("other", {3}), weight(kWeight + "_w", {4, 2}),
                    state(kWeight + "_w", {4, 2}), state(kWeight + "_v", {4, 2})});
  join_gated_halves(map);
  EXPECT_EQ(names_of(map), (std::vector<std::string>{"other", kWeight, "optimizer.state." + kWeight + ".exp_avg"}));
  EXPECT_EQ(map.tensors[1].shape, (Shape{8, 2}));
  EXPECT_EQ(map.tensors[2].shape, (Shape{8, 2}));
  EXPECT_EQ(map.tensors[2].parameter, kWeight);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> begins_and_offsets;
  for (const std::size_t tensor : {1U, 2U})
    ASSERT_TRUE(map.index->chunks(tensor, {0, 16}, [&](const PlacedChunk& chunk) -> Result<> {
      EXPECT_EQ(chunk.chunk.volume(), 8U);
      const std::uint64_t begin = chunk.chunk.flat ? chunk.chunk.flat->begin : 2 * chunk.chunk.box.offset[0];
      begins_and_offsets.emplace_back(begin, chunk.where.offset);
      return {};
    }));
  EXPECT_EQ(begins_and_offsets,
            (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 2000}, {8, 0}, {0, 3000}, {8, 4000}}));
}

TEST(GatedHalves, ThatDoNotFitStay) {
  for (const std::vector<Tensor>& tensors :
       {std::vector{weight(kWeight + "_w", {4, 2}), weight(kWeight + "_v", {3, 2})},
        std::vector{weight(kWeight + "_w", {4, 2})}, std::vector{weight("a_w", {4, 2}), weight("a_v", {4, 2})},
        std::vector{state(kWeight + "_w", {4, 2}), state(kWeight + "_v", {4, 2})}}) {
    Map map = map_of(tensors);
    const auto before = names_of(map);
    join_gated_halves(map);
    EXPECT_EQ(names_of(map), before);
  }
}

}  // namespace
}  // namespace ckpt
