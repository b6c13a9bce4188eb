#include "format/text/nearest.hpp"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <array>

namespace ckpt {
namespace {

const std::array<std::string, 5> kVerbs{"convert", "verify", "inspect", "ls", "explain"};

TEST(EditDistance, CountsInsertDeleteReplaceAndSwap) {
  EXPECT_EQ(edit_distance("convert", "convert"), 0u);
  EXPECT_EQ(edit_distance("convrt", "convert"), 1u);
  EXPECT_EQ(edit_distance("conveert", "convert"), 1u);
  EXPECT_EQ(edit_distance("konvert", "convert"), 1u);
  EXPECT_EQ(edit_distance("covnert", "convert"), 1u);
  EXPECT_EQ(edit_distance("", "ls"), 2u);
}

TEST(Nearest, FindsTheWordThatWasMeant) {
  EXPECT_EQ(nearest("convrt", kVerbs), "convert");
  EXPECT_EQ(nearest("verfiy", kVerbs), "verify");
  EXPECT_EQ(nearest("sl", kVerbs), "ls");
  EXPECT_EQ(nearest("insp", kVerbs), "inspect");
}

TEST(Nearest, StaysSilentWhenNothingIsNear) {
  EXPECT_EQ(nearest("frobnicate", kVerbs), std::nullopt);
  EXPECT_EQ(nearest("", kVerbs), std::nullopt);
  EXPECT_EQ(nearest(std::string(1000, 'a'), kVerbs), std::nullopt);
}

RC_GTEST_PROP(EditDistanceProperty, IsSymmetricAndBoundedByTheLongerWord,
              (const std::string& a, const std::string& b)) {
  const std::size_t distance = edit_distance(a, b);
  RC_ASSERT(distance == edit_distance(b, a));
  RC_ASSERT(distance <= std::max(a.size(), b.size()));
  RC_ASSERT((distance == 0) == (a == b));
}

RC_GTEST_PROP(EditDistanceProperty, OneSwapOfNeighboursIsOneEditAtMost, (std::string a)) {
  RC_PRE(a.size() >= 2);
  const std::size_t at = *rc::gen::inRange<std::size_t>(0, a.size() - 1);
  std::string b = a;
  std::swap(b[at], b[at + 1]);
  RC_ASSERT(edit_distance(a, b) <= 1);
}

}  // namespace
}  // namespace ckpt
