// Whether chunks make a tensor whole, at what cost.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "format/model.hpp"

namespace ckpt {
namespace {

Result<> covered(const Shape& shape, const std::vector<Box>& boxes) {
  Map map;
  map.tensors = {{.name = "w", .dtype = Dtype::u8, .shape = shape}};
  auto table = std::make_shared<ChunkTable>(1);
  for (const Box& box : boxes) table->add(0, shape, {.box = box}, {});
  table->seal();
  map.index = std::move(table);
  const std::vector<std::uint32_t> all{0};
  return check_coverage(map, all);
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
