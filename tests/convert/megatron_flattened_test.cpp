// Optimizer state that megatron-core before 0.15 stored flattened, and what only looks like it.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/megatron/flattened_state.hpp"
#include "format/model/model.hpp"

namespace ckpt {
namespace {

const std::string kState = "optimizer.state.w.exp_avg";

/// A weight "w" and its state, in these chunks, which lie in file 0 one after another.
Map map_of(Shape weight, Shape state, const std::vector<Box>& chunks) {
  Map map;
  map.files.push_back({.path = "data", .bytes = 1 << 20});
  map.tensors.push_back({.name = "w", .shape = weight});
  map.tensors.push_back({.name = kState, .shape = state, .role = Role::slot, .parameter = "w", .slot = "exp_avg"});
  auto table = std::make_shared<ChunkTable>(2);
  std::uint64_t offset = 0;
  for (const Box& box : chunks) {
    table->add(1, state, {.box = box}, {.offset = offset});
    offset += volume(box.size) * sizeof(float);
  }
  table->seal();
  map.index = std::move(table);
  return map;
}

struct Placed {
  Box box;
  std::optional<Extent> flat;
  std::uint64_t offset;
  bool operator==(const Placed&) const = default;
};

std::vector<Placed> placed_in(const Map& map) {
  std::vector<Placed> out;
  const auto all = map.index->chunks(1, {0, volume(map.tensors[1].shape)}, [&](const PlacedChunk& chunk) -> Result<> {
    out.push_back({chunk.chunk.box, chunk.chunk.flat, chunk.where.offset});
    return {};
  });
  EXPECT_TRUE(all);
  return out;
}

TEST(MegatronFlattened, EachPartOfTheWeightIsARow) {
  // [4, 2] cut in two along both dimensions; data-parallel ranks share the first row.
  Map map = map_of({4, 2}, {2, 2, 2},
                   {{{0, 0, 0}, {1, 1, 1}},
                    {{0, 0, 1}, {1, 1, 1}},
                    {{0, 1, 0}, {1, 1, 2}},
                    {{1, 0, 0}, {1, 1, 2}},
                    {{1, 1, 0}, {1, 1, 2}}});
  ASSERT_TRUE(megatron::unflatten_state(map, false));
  EXPECT_EQ(map.tensors[1].shape, (Shape{4, 2}));
  const Box first{{0, 0}, {2, 1}};
  EXPECT_EQ(placed_in(map), (std::vector<Placed>{{first, Extent{0, 1}, 0},
                                                 {first, Extent{1, 2}, 4},
                                                 {{{0, 1}, {2, 1}}, {}, 8},
                                                 {{{2, 0}, {2, 1}}, {}, 16},
                                                 {{{2, 1}, {2, 1}}, {}, 24}}));
}

TEST(MegatronFlattened, OtherFormsStayAsTheyAre) {
  const std::vector<std::pair<Shape, Map>> cases = [] {
    std::vector<std::pair<Shape, Map>> out;
    const auto add = [&](Shape weight, const Shape& state, const std::vector<Box>& chunks) {
      out.emplace_back(state, map_of(std::move(weight), state, chunks));
    };
    add({4, 2}, {8}, {{{0}, {8}}});                          // one row for all
    add({4, 2}, {3, 2, 2}, {{{0, 0, 0}, {1, 1, 2}}});        // three parts of four rows
    add({4, 2}, {2, 2, 3}, {{{0, 0, 0}, {1, 1, 3}}});        // more elements than a part has
    add({4, 2}, {2, 2, 2}, {{{0, 0, 0}, {2, 2, 2}}});        // not in rows
    add({1ULL << 40}, {1ULL << 40, 1}, {{{0, 0}, {1, 1}}});  // more parts than chunks
    add({0, 2}, {0, 2, 0}, {});                              // nothing
    return out;
  }();
  for (auto [shape, map] : cases) {
    const auto before = map.index;
    ASSERT_TRUE(megatron::unflatten_state(map, false));
    EXPECT_EQ(map.tensors[1].shape, shape);
    EXPECT_EQ(map.index, before);
  }
}

/// A run of these arguments, with its weight and state renamed to those of experts' first layers.
Map of_experts(Map map, std::vector<std::pair<std::string_view, bool>> switches) {
  const std::string weight = "decoder.layers.mlp.experts.experts.linear_fc1.weight";
  map.tensors[0].name = map.tensors[1].parameter = weight;
  Dict args;
  const auto add = [&](std::string_view name, const Value& value) {
    args.items.emplace_back(std::make_shared<Value>(Value{std::string(name)}), std::make_shared<Value>(value));
  };
  switches.emplace_back("use_distributed_optimizer", true);
  for (const auto& [name, is_on] : switches) add(name, Value{is_on});
  add("transformer_impl", Value{std::string("transformer_engine")});
  map.objects.push_back({.name = "args", .value = Value{std::move(args)}});
  return map;
}

TEST(MegatronFlattened, StateOfTransposedExpertsBelongsToNoWeight) {
  // One layer and expert, gate and up halves of two rows: [4, 6] as GroupedMLP cuts its [6, 4] by columns.
  const auto by_columns = [] {
    return map_of({1, 1, 4, 6}, {1, 1, 1, 2, 12},
                  {{{0, 0, 0, 0, 0}, {1, 1, 1, 1, 12}}, {{0, 0, 0, 1, 0}, {1, 1, 1, 1, 12}}});
  };
  const auto by_rows = [] {
    return map_of({1, 1, 4, 6}, {1, 1, 2, 1, 12},
                  {{{0, 0, 0, 0, 0}, {1, 1, 1, 1, 12}}, {{0, 0, 1, 0, 0}, {1, 1, 1, 1, 12}}});
  };
  Map cut = of_experts(by_columns(), {});
  Map told = of_experts(by_rows(), {{"moe_grouped_gemm", true}, {"moe_use_legacy_grouped_gemm", true}});
  for (Map* map : {&cut, &told}) {
    const Shape before = map->tensors[1].shape;
    ASSERT_TRUE(megatron::unflatten_state(*map, false));
    EXPECT_EQ(map->tensors[1].shape, before);
    EXPECT_EQ(map->tensors[1].parameter, "");
    EXPECT_EQ(map->findings.size(), 1U);
  }
  Map other = of_experts(by_rows(), {{"moe_grouped_gemm", true}});
  ASSERT_TRUE(megatron::unflatten_state(other, false));
  EXPECT_EQ(other.tensors[1].shape, (Shape{1, 1, 4, 6}));
  // The zarr back end has the shape of what it was made of, which may be that of the weight.
  Map square = of_experts(map_of({1, 1, 4, 4}, {1, 1, 4, 4}, {{{0, 0, 0, 0}, {1, 1, 4, 4}}}),
                          {{"moe_grouped_gemm", true}, {"moe_use_legacy_grouped_gemm", true}});
  ASSERT_TRUE(megatron::unflatten_state(square, true));
  EXPECT_EQ(square.tensors[1].parameter, "");
}

}  // namespace
}  // namespace ckpt
