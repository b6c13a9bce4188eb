#include "format/model/cut.hpp"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <limits>

namespace ckpt {
namespace {

using cut::Split;

/// The extents of all parts follow one another from 0 to `length`, and `part_of` finds the owner of every element.
template <class Owned, class PartOf>
void expect_exactly_once(std::uint64_t length, std::uint64_t part_count, const Owned& owned, const PartOf& part_of) {
  std::uint64_t at = 0;
  for (std::uint64_t part = 0; part < part_count; ++part) {
    const Extent extent = owned(part);
    ASSERT_EQ(extent.begin, at) << "length " << length << ", part " << part << " of " << part_count;
    ASSERT_LE(extent.begin, extent.end);
    for (; at < extent.end; ++at) ASSERT_EQ(part_of(at), part) << "element " << at << " of " << length;
  }
  ASSERT_EQ(at, length) << part_count << " parts";
}

TEST(Cut, EveryRuleCoversEverySmallRangeExactlyOnceAndFindsTheOwnerOfEachElement) {
  for (std::uint64_t length = 0; length <= 40; ++length) {
    for (std::uint64_t part_count = 1; part_count <= 12; ++part_count) {
      const Split split{.length = length, .part_count = part_count};
      expect_exactly_once(
          length, part_count, [&](std::uint64_t p) { return cut::chunk(split, p); },
          [&](std::uint64_t at) { return cut::part_of_chunk(split, at); });
      expect_exactly_once(
          length, part_count, [&](std::uint64_t p) { return cut::even(split, p); },
          [&](std::uint64_t at) { return cut::part_of_even(split, at); });
      const auto group = cut::flat_group({.element_count = length, .part_count = part_count});
      ASSERT_TRUE(group);
      expect_exactly_once(
          length, part_count, [&](std::uint64_t p) { return group->owned(p); },
          [&](std::uint64_t at) { return group->part_of(at); });
      const auto partition = cut::partition(split);
      ASSERT_TRUE(partition);
      expect_exactly_once(
          length, part_count, [&](std::uint64_t p) { return partition->owned(p); },
          [&](std::uint64_t at) { return partition->part_of(at); });
    }
  }
}

TEST(Cut, ChunkGivesCeilSizedPartsFirstAndEvenDiffersByAtMostOne) {
  EXPECT_EQ(cut::chunk({.length = 10, .part_count = 4}, 2), (Extent{6, 9}));
  EXPECT_EQ(cut::chunk({.length = 10, .part_count = 4}, 3), (Extent{9, 10}));
  EXPECT_EQ(cut::chunk({.length = 5, .part_count = 4}, 3), (Extent{5, 5}));
  EXPECT_EQ(cut::even({.length = 10, .part_count = 4}, 1), (Extent{3, 6}));
  EXPECT_EQ(cut::even({.length = 10, .part_count = 4}, 3), (Extent{8, 10}));
  EXPECT_EQ(cut::even({.length = 3, .part_count = 5}, 4), (Extent{3, 3}));
}

TEST(Cut, FlatGroupPadsTheTailToTwiceTheWorld) {
  // Measured on DeepSpeed 0.19: 5 elements over 4 ranks are parts of 2 with paddings 0, 0, 1, 2.
  const auto group = cut::flat_group({.element_count = 5, .part_count = 4});
  ASSERT_TRUE(group);
  EXPECT_EQ(group->part_elements, 2u);
  const std::uint64_t expected[] = {0, 0, 1, 2};
  for (std::uint64_t part = 0; part < 4; ++part) EXPECT_EQ(group->padding(part), expected[part]);
  const auto old = cut::flat_group({.element_count = 9, .part_count = 4, .align_factor = 1});
  ASSERT_TRUE(old);
  EXPECT_EQ(old->part_elements, 3u);
}

TEST(Cut, SubGroupsCloseWhenTheirPartsReachTheSizeAndAGroupThatFitsStaysWhole) {
  const std::uint64_t parts[] = {808, 328, 328, 808};
  // A genuine run: sub_group_size 700, four ranks.
  EXPECT_EQ(*cut::sub_groups({.part_elements = parts, .sub_group_elements = 700}), (std::vector<std::size_t>{1, 4}));
  EXPECT_EQ(*cut::sub_groups({.part_elements = parts, .sub_group_elements = 2272}), (std::vector<std::size_t>{4}));
  EXPECT_EQ(*cut::sub_groups({.part_elements = parts, .sub_group_elements = 1}),
            (std::vector<std::size_t>{1, 2, 3, 4}));
  EXPECT_TRUE(cut::sub_groups({.part_elements = {}, .sub_group_elements = 1})->empty());
}

TEST(Cut, ImpossibleNumbersAreCorrupt) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(cut::flat_group({.element_count = 8, .part_count = 0}).error().code, Errc::corrupt);
  EXPECT_EQ(cut::flat_group({.element_count = 8, .part_count = kMax}).error().code, Errc::corrupt);
  EXPECT_EQ(cut::flat_group({.element_count = kMax, .part_count = 2}).error().code, Errc::corrupt);
  EXPECT_EQ(cut::partition({.length = 8, .part_count = 0}).error().code, Errc::corrupt);
  const std::uint64_t parts[] = {kMax, 1};
  EXPECT_EQ(cut::sub_groups({.part_elements = parts, .sub_group_elements = 1}).error().code, Errc::corrupt);
}

RC_GTEST_PROP(CutProperty, LargeRangesAreCutWithoutGapOrOverlap, ()) {
  const auto length = *rc::gen::inRange<std::uint64_t>(0, std::uint64_t{1} << 62);
  const auto part_count = *rc::gen::inRange<std::uint64_t>(1, std::uint64_t{1} << 20);
  const auto part = *rc::gen::inRange<std::uint64_t>(0, part_count);
  const Split split{.length = length, .part_count = part_count};
  const auto group = cut::flat_group({.element_count = length, .part_count = part_count});
  const auto partition = cut::partition(split);
  RC_ASSERT(group.has_value() && partition.has_value());
  const auto check = [&](const auto& owned, const auto& part_of) {
    const Extent mine = owned(part);
    RC_ASSERT(owned(0).begin == 0u);
    RC_ASSERT(owned(part_count - 1).end == length);
    if (part + 1 < part_count) RC_ASSERT(owned(part + 1).begin == mine.end);
    if (mine.size() > 0) RC_ASSERT(part_of(mine.begin) == part && part_of(mine.end - 1) == part);
  };
  check([&](std::uint64_t p) { return cut::chunk(split, p); },
        [&](std::uint64_t at) { return cut::part_of_chunk(split, at); });
  check([&](std::uint64_t p) { return cut::even(split, p); },
        [&](std::uint64_t at) { return cut::part_of_even(split, at); });
  check([&](std::uint64_t p) { return group->owned(p); }, [&](std::uint64_t at) { return group->part_of(at); });
  check([&](std::uint64_t p) { return partition->owned(p); }, [&](std::uint64_t at) { return partition->part_of(at); });
  RC_ASSERT(group->part_elements % 2 == 0u);
  RC_ASSERT(group->owned(part).size() + group->padding(part) == group->part_elements);
}

RC_GTEST_PROP(CutProperty, SubGroupsHoldEveryParameterOnceAndOnlyTheLastIsUnderfull, ()) {
  const auto parts = *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(0, 1000));
  const auto size = *rc::gen::inRange<std::uint64_t>(1, 3000);
  const auto ends = cut::sub_groups({.part_elements = parts, .sub_group_elements = size});
  RC_ASSERT(ends.has_value());
  RC_ASSERT(ends->empty() == parts.empty());
  std::size_t begin = 0;
  for (const std::size_t end : *ends) {
    RC_ASSERT(end > begin);
    std::uint64_t sum = 0;
    std::uint64_t before_last = 0;
    for (; begin < end; ++begin) {
      before_last = sum;
      sum += parts[begin];
    }
    if (end != parts.size()) RC_ASSERT(sum >= size && before_last < size);
  }
  RC_ASSERT(begin == parts.size());
}

TEST(Cut, RoundRobinGivesEachPartEveryNthParameter) {
  EXPECT_EQ(cut::round_robin(7, 3), (std::vector<std::size_t>{0, 3, 6, 1, 4, 2, 5}));
  EXPECT_EQ(cut::round_robin(2, 5), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(cut::round_robin(3, 1), (std::vector<std::size_t>{0, 1, 2}));
}

}  // namespace
}  // namespace ckpt
