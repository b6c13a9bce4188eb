#include "format/model/box.hpp"

#include <gtest/gtest.h>

#include <set>

namespace ckpt {
namespace {

TEST(Box, AFlatRangeSplitsIntoBoxesInOrderAtMostTwoNMinusOne) {
  // Every range of every small array, inside a larger tensor.
  for (std::uint64_t a = 1; a <= 3; ++a) {
    for (std::uint64_t b = 1; b <= 3; ++b) {
      for (std::uint64_t c = 1; c <= 4; ++c) {
        const Box box{{5, 0, 2}, {a, b, c}};
        const std::uint64_t n = a * b * c;
        for (std::uint64_t begin = 0; begin < n; ++begin) {
          for (std::uint64_t end = begin; end <= n; ++end) {
            std::vector<Box> parts;
            split_flat(box, {begin, end}, parts);
            ASSERT_LE(parts.size(), 5u);
            std::uint64_t at = begin;
            for (const Box& part : parts) {
              ASSERT_EQ(linear_index(box, part.offset), at);
              ASSERT_TRUE(intersect(part, box) && *intersect(part, box) == part);
              at += volume(part.size);
            }
            ASSERT_EQ(at, end);
          }
        }
      }
    }
  }
}

TEST(Box, AZeroDimensionalTensorIsOneElement) {
  std::vector<Box> parts;
  split_flat(Box{}, {0, 1}, parts);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(volume(parts[0].size), 1u);
}

TEST(Box, FitsRefusesWhatPassesTheShapeOrWraps) {
  EXPECT_TRUE(fits({{0, 0}, {2, 3}}, {2, 3}));
  EXPECT_FALSE(fits({{1, 0}, {2, 3}}, {2, 3}));
  EXPECT_FALSE(fits({{0}, {2}}, {2, 3}));
  EXPECT_FALSE(fits({{~std::uint64_t{0}, 0}, {2, 3}}, {2, 3}));
  EXPECT_FALSE(fits({{0, 0}, {std::uint64_t{1} << 40, 1}}, {std::uint64_t{1} << 40, std::uint64_t{1} << 40}));
}

}  // namespace
}  // namespace ckpt
