#include "format/model/rank_layout.hpp"

#include <gtest/gtest.h>

namespace ckpt {
namespace {

TEST(RankLayout, ANameEndsInItsRankOnlyWhereThereIsSuchARank) {
  EXPECT_EQ(ranked_name("fc.weight", 3), "fc.weight@3");
  const RankedName third = split_ranked_name("fc.weight@3", 4);
  EXPECT_EQ(third.name, "fc.weight");
  EXPECT_EQ(third.rank, 3u);
  EXPECT_TRUE(third.has_rank);
  for (const std::string_view other : {"fc.weight", "fc.weight@4", "fc.weight@", "fc.weight@x", "fc.weight@1x", "@"}) {
    const RankedName whole = split_ranked_name(other, 4);
    EXPECT_EQ(whole.name, other);
    EXPECT_EQ(whole.rank, 0u);
    EXPECT_FALSE(whole.has_rank) << other;
  }
}

}  // namespace
}  // namespace ckpt
