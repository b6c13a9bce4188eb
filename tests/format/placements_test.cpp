#include "format/universal/placements.hpp"

#include <gtest/gtest.h>

#include "format/model/cut.hpp"

namespace ckpt::universal {
namespace {

Mesh mesh(std::vector<Axis> axes) {
  return {std::move(axes)};
}

Tensor tensor(Shape shape) {
  return {.name = "w", .dtype = Dtype::f32, .shape = std::move(shape)};
}

/// What a writer holds, as text: [begin:end,begin:end] a box, with {begin:end} behind it where flat.
std::string held(const Layout& layout, const Shape& shape, std::uint64_t writer, std::uint64_t begin = 0) {
  const Tensor whole = tensor(shape);
  EXPECT_TRUE(check_layout(layout, whole, begin)) << check_layout(layout, whole, begin).error().message;
  std::string out;
  const std::vector<Chunk> chunks = held_chunks(layout, whole, begin, writer).value();
  for (const Chunk& chunk : chunks) {
    out += '[';
    for (std::size_t d = 0; d < shape.size(); ++d) {
      out += (d == 0 ? "" : ",") + std::to_string(chunk.box.offset[d]) + ":" +
             std::to_string(chunk.box.offset[d] + chunk.box.size[d]);
    }
    out += ']';
    if (chunk.flat) out += "{" + std::to_string(chunk.flat->begin) + ":" + std::to_string(chunk.flat->end) + "}";
  }
  return out;
}

TEST(Placements, FsdpLeavesTrailingRanksShortOrEmpty) {
  // torch.chunk(torch.arange(5), 4) gives 2, 2, 1 and nothing.
  const Layout layout = placement::fsdp_shard(placement::replicated(mesh({{"dp", 4}})), 0, {0}).value();
  EXPECT_EQ(held(layout, {5, 2}, 0), "[0:2,0:2]");
  EXPECT_EQ(held(layout, {5, 2}, 2), "[4:5,0:2]");
  EXPECT_EQ(held(layout, {5, 2}, 3), "");
  const Layout even = placement::even_shard(placement::replicated(mesh({{"dp", 4}})), 0, {0}).value();
  EXPECT_EQ(held(even, {5, 2}, 3), "[4:5,0:2]");
}

TEST(Placements, HsdpReplicatesOverTheAxisItDoesNotName) {
  const Layout layout =
      placement::fsdp_shard(placement::replicated(mesh({{"replicate", 2}, {"shard", 2}})), 0, {1}).value();
  EXPECT_EQ(held(layout, {4}, 1), "[2:4]");
  EXPECT_EQ(held(layout, {4}, 3), "[2:4]");
  std::size_t written = 0;
  for (std::uint64_t writer = 0; writer < 4; ++writer)
    written += written_chunks(layout, tensor({4}), 0, writer)->size();
  EXPECT_EQ(written, 2u) << "each half once";
}

TEST(Placements, FsdpAfterTensorParallelismIsStrided) {
  // DTensor on a (dp 2, tp 2) mesh with [_StridedShard(0, split_factor=2), Shard(0)]: rank (d, t) holds part d of part
  // t.
  Layout layout = placement::replicated(mesh({{"dp", 2}, {"tp", 2}}));
  layout = placement::tensor_parallel(layout, {.axis = 1, .dim = 0, .length = 8}).value();
  layout = placement::fsdp_shard(layout, 0, {0}).value();
  EXPECT_EQ(held(layout, {8}, 0), "[0:2]");
  EXPECT_EQ(held(layout, {8}, 1), "[4:6]");
  EXPECT_EQ(held(layout, {8}, 2), "[2:4]");
  EXPECT_EQ(held(layout, {8}, 3), "[6:8]");
}

TEST(Placements, RowsOfTheVocabularyArePaddedBehindTheRealOnes) {
  // 99 rows, TP 2, divisible by 8: padded to 112, so 56 and 43.
  const Layout layout =
      placement::vocabulary(placement::replicated(mesh({{"tp", 2}})), {.axis = 0, .rows = 99, .divisible_by = 8})
          .value();
  EXPECT_EQ(held(layout, {99, 4}, 0), "[0:56,0:4]");
  EXPECT_EQ(held(layout, {99, 4}, 1), "[56:99,0:4]");
  const Layout wide =
      placement::vocabulary(placement::replicated(mesh({{"tp", 4}})), {.axis = 0, .rows = 10, .divisible_by = 8})
          .value();
  EXPECT_EQ(held(wide, {10, 4}, 1), "[8:10,0:4]");
  EXPECT_EQ(held(wide, {10, 4}, 2), "") << "padding only";
}

TEST(Placements, FusedProjectionsAreDividedByGroupOrEachByItself) {
  const Layout on = placement::replicated(mesh({{"tp", 2}}));
  // 4 heads in 2 groups of 3 rows a head: (2 + 1 + 1) * 3 rows a group.
  const Layout grouped = placement::grouped_qkv(on, {.axis = 0, .heads = 4, .groups = 2, .head_rows = 3}).value();
  EXPECT_EQ(held(grouped, {24, 5}, 1), "[12:24,0:5]");
  const Layout qkv = placement::stacked(on, {.axis = 0, .dim = 0, .lengths = {8, 4, 4}}).value();
  EXPECT_EQ(held(qkv, {16, 5}, 1), "[4:8,0:5][10:12,0:5][14:16,0:5]");
  const Layout glu = placement::stacked(on, {.axis = 0, .dim = 0, .lengths = {6, 6}}).value();
  EXPECT_EQ(held(glu, {12, 5}, 0), "[0:3,0:5][6:9,0:5]");
  EXPECT_FALSE(placement::grouped_qkv(on, {.axis = 0, .heads = 4, .groups = 1, .head_rows = 3}));
  EXPECT_FALSE(placement::stacked(on, {.axis = 0, .dim = 0, .lengths = {3, 6}}));
}

TEST(Placements, LayersGoToTheirStageWithOrWithoutVirtualStages) {
  std::vector<std::uint64_t> plain;
  std::vector<std::uint64_t> turns;
  for (std::uint64_t layer = 0; layer < 8; ++layer) {
    plain.push_back(placement::stage_of_layer({.layers = 8, .stages = 2}, layer).value());
    turns.push_back(placement::stage_of_layer({.layers = 8, .stages = 2, .virtual_stages = 2}, layer).value());
  }
  EXPECT_EQ(plain, (std::vector<std::uint64_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(turns, (std::vector<std::uint64_t>{0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_FALSE(placement::stage_of_layer({.layers = 9, .stages = 2}, 0));
  EXPECT_FALSE(placement::stage_of_layer({.layers = 8, .stages = 0}, 0));
  EXPECT_FALSE(placement::stage_of_layer({.layers = 8, .stages = 2}, 8));
}

TEST(Placements, StagesAndExpertsAreHeldWhereTheyAreOnly) {
  const Layout on = placement::replicated(mesh({{"pp", 3}, {"dp", 2}}));
  const Layout tied = placement::at_stages(on, 0, {2, 0}).value();
  EXPECT_EQ(held(tied, {2}, 0), "[0:2]");
  EXPECT_EQ(held(tied, {2}, 2), "");
  EXPECT_EQ(held(tied, {2}, 5), "[0:2]");
  const Layout experts = placement::replicated(mesh({{"ep", 2}}));
  EXPECT_EQ(held(placement::at_expert(experts, {.axis = 0, .count = 4}, 1).value(), {2}, 0), "[0:2]");
  EXPECT_EQ(held(placement::at_expert(experts, {.axis = 0, .count = 4}, 2).value(), {2}, 0), "");
  EXPECT_FALSE(placement::at_expert(experts, {.axis = 0, .count = 3}, 0));
  EXPECT_FALSE(placement::at_expert(experts, {.axis = 0, .count = 4}, 4));
}

TEST(Placements, ZeroGroupsIgnoreTheBordersOfParameters) {
  const std::vector<std::uint64_t> counts{6, 1, 10};  // 17, padded to 20 by 2 * 2: parts of 10
  const auto group = placement::flat_group({.element_counts = counts, .ranks = 2}).value();
  EXPECT_EQ(group.part, cut::flat_group({.element_count = 17, .part_count = 2})->part_elements);
  EXPECT_EQ(group.begins, (std::vector<std::uint64_t>{0, 6, 7}));
  const Layout layout = placement::flat_parts(placement::replicated(mesh({{"dp", 2}})), {0}, group.part).value();
  EXPECT_EQ(held(layout, {2, 3}, 0, 0), "[0:2,0:3]");
  EXPECT_EQ(held(layout, {2, 3}, 1, 0), "");
  EXPECT_EQ(held(layout, {5, 2}, 0, 7), "[0:5,0:2]{0:3}");
  EXPECT_EQ(held(layout, {5, 2}, 1, 7), "[0:5,0:2]{3:10}");
}

TEST(Placements, Zero3DividesEveryParameterByItself) {
  const Layout on = placement::replicated(mesh({{"dp", 4}}));
  const Layout layout = placement::zero3(on, {0}, 6).value();
  EXPECT_EQ(held(layout, {2, 3}, 0), "[0:2,0:3]{0:2}");
  EXPECT_EQ(held(layout, {2, 3}, 2), "[0:2,0:3]{4:6}");
  EXPECT_EQ(held(layout, {2, 3}, 3), "") << "padding only";
  EXPECT_TRUE(placement::zero3(on, {0}, 0));
  EXPECT_FALSE(placement::zero3(on, {1}, 6));
}

TEST(Placements, StepsThatCannotBeAreUsage) {
  const Layout on = placement::replicated(mesh({{"tp", 2}}));
  EXPECT_EQ(placement::axis(on.mesh, "tp").value(), 0u);
  EXPECT_EQ(placement::axis(on.mesh, "pp").error().code, Errc::usage);
  EXPECT_EQ(placement::tensor_parallel(on, {.axis = 0, .dim = 0, .length = 7}).error().code, Errc::usage);
  EXPECT_EQ(placement::tensor_parallel(on, {.axis = 1, .dim = 0, .length = 8}).error().code, Errc::usage);
  const Layout once = placement::fsdp_shard(on, 0, {0}).value();
  EXPECT_EQ(placement::fsdp_shard(once, 0, {0}).error().code, Errc::usage) << "the axis is taken";
  EXPECT_EQ(placement::fsdp_shard(on, 0, {}).error().code, Errc::usage);
  EXPECT_EQ(placement::vocabulary(on, {.axis = 0, .rows = 9, .divisible_by = 0}).error().code, Errc::usage);
  EXPECT_EQ(placement::vocabulary(on, {.axis = 0, .rows = ~std::uint64_t{0}}).error().code, Errc::usage);
}

}  // namespace
}  // namespace ckpt::universal
