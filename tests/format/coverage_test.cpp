// Whether chunks make a tensor whole, at what cost.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "format/model/model.hpp"

namespace ckpt {
namespace {

Result<> covered(const Shape& shape, const std::vector<Chunk>& chunks) {
  Map map;
  map.tensors = {{.name = "w", .dtype = Dtype::u8, .shape = shape}};
  auto table = std::make_shared<ChunkTable>(1);
  for (const Chunk& chunk : chunks) table->add(0, shape, chunk, {});
  table->seal();
  map.index = std::move(table);
  const std::vector<std::uint32_t> all{0};
  return check_coverage(map, all);
}

Result<> covered(const Shape& shape, const std::vector<Box>& boxes) {
  std::vector<Chunk> chunks;
  for (const Box& box : boxes) chunks.push_back({.box = box});
  return covered(shape, chunks);
}

TEST(Coverage, ReplicasHoldTheSameElementsAllOfThem) {
  const Box left{{0, 0}, {4, 5}};
  const Chunk right{.box = {{0, 5}, {4, 5}}};
  const Chunk first{.box = left, .flat = Extent{0, 7}};  // a row and two
  const Chunk rest{.box = left, .flat = Extent{7, 20}};
  EXPECT_TRUE(covered({4, 10}, std::vector<Chunk>{right, first, rest, first, rest, rest, right}));
  // One row, written in two ways.
  EXPECT_TRUE(covered({4, 10}, std::vector<Chunk>{right,
                                                  {.box = left, .flat = Extent{0, 5}},
                                                  {.box = {{0, 0}, {1, 5}}},
                                                  {.box = left, .flat = Extent{5, 20}}}));
  // Begins like the range [0, 7), and ends with its first row: what follows it in its file is something else.
  const auto shorter = covered({4, 10}, std::vector<Chunk>{right, first, rest, {.box = left, .flat = Extent{0, 5}}});
  ASSERT_FALSE(shorter);
  EXPECT_EQ(shorter.error().code, Errc::overlap) << shorter.error().message;
}

TEST(Coverage, AsManyPartsSideBySideCostNoMoreThanOneBelowTheOther) {
  constexpr std::uint64_t kParts = 200'000;  // to compare every two of them would take minutes
  for (const std::size_t along : {0u, 1u}) {
    Shape shape{2, 2};
    shape[along] = kParts;
    std::vector<Box> boxes;
    for (std::uint64_t i = 0; i < kParts; ++i) {
      Box box{{0, 0}, {2, 2}};
      box.offset[along] = i;
      box.size[along] = 1;
      boxes.push_back(box);
    }
    EXPECT_TRUE(covered(shape, boxes)) << along;
    boxes.back().offset[along] = 7;
    boxes.back().offset[1 - along] = 1;  // half of part 7, a second time
    boxes.back().size[1 - along] = 1;
    const auto twice = covered(shape, boxes);
    ASSERT_FALSE(twice);
    EXPECT_EQ(twice.error().code, Errc::overlap);
    boxes.pop_back();
    const auto hole = covered(shape, boxes);
    ASSERT_FALSE(hole);
    EXPECT_EQ(hole.error().code, Errc::uncovered);
  }
}

TEST(Coverage, BoxesThatMeetInOnePointAreFoundWhereverTheSweepGoes) {
  // A grid of four, one of them too large by a row and a column.
  const std::vector<Box> grid{{{0, 0}, {3, 3}}, {{0, 3}, {3, 5}}, {{3, 0}, {5, 3}}, {{3, 3}, {5, 5}}};
  EXPECT_TRUE(covered({8, 8}, grid));
  for (std::size_t i = 0; i < grid.size(); ++i) {
    std::vector<Box> wrong = grid;
    for (std::size_t d = 0; d < 2; ++d) {
      if (wrong[i].offset[d] != 0) --wrong[i].offset[d];
      ++wrong[i].size[d];
    }
    const auto met = covered({8, 8}, wrong);
    ASSERT_FALSE(met);
    EXPECT_EQ(met.error().code, Errc::overlap) << met.error().message;
  }
}

}  // namespace
}  // namespace ckpt
