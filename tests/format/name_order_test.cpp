#include "format/model/name_order.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace ckpt {
namespace {

bool sorted(std::vector<std::string_view> names) {
  return is_sorted_by_name(names);
}

TEST(NameOrder, OnlyAFileThatSortsHasTenBeforeTwoOrBiasBeforeWeight) {
  EXPECT_TRUE(sorted({"h.0.w", "h.1.w", "h.10.w", "h.2.w"}));
  EXPECT_TRUE(sorted({"0.bias", "0.weight"}));
  EXPECT_TRUE(sorted({"lm_head.weight", "model.a.weight", "model.b.weight", "model.c.weight", "norm.weight"}));
}

TEST(NameOrder, AModelMayHaveSortedNames) {
  EXPECT_FALSE(sorted({}));
  EXPECT_FALSE(sorted({"weight"}));
  EXPECT_FALSE(sorted({"0.weight", "2.weight", "4.weight", "6.weight", "8.weight"}));
  EXPECT_FALSE(sorted({"conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"}));
  EXPECT_FALSE(sorted({"decoder.weight", "encoder.weight"}));
}

TEST(NameOrder, OneNameOutOfOrderShowsAModel) {
  EXPECT_FALSE(sorted({"h.0.bias", "h.0.weight", "h.10.weight", "h.2.weight", "a"}));
  EXPECT_FALSE(sorted({"emb.weight", "h.0.up.weight", "h.0.up.bias", "h.0.down.weight", "norm.weight"}));
}

}  // namespace
}  // namespace ckpt
