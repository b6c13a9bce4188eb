#include "convert/deepspeed/files/partition_index.hpp"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <vector>

namespace ckpt::deepspeed {
namespace {

/// Ranks whose files are numbered like them; every run begins at byte 1000.
std::vector<Run> runs(std::uint64_t ranks, std::uint64_t elements) {
  std::vector<Run> out;
  for (std::uint64_t r = 0; r < ranks; ++r) {
    out.push_back({.offset = 1000, .elements = elements, .file = static_cast<std::uint32_t>(r), .dtype = Dtype::f32});
  }
  return out;
}

struct Place {
  std::uint32_t file = 0;
  std::uint64_t element = 0;  // of the file's run
  bool operator==(const Place&) const = default;
};

/// Where each element of a tensor is, by asking for `elements`; an element in no chunk, or in two, fails the test.
std::vector<Place> places(const PartitionIndex& index, std::size_t tensor, const Shape& shape, Extent elements) {
  std::vector<Place> out(volume(shape));
  std::vector<int> seen(out.size(), 0);
  const auto visited = index.chunks(tensor, elements, [&](const PlacedChunk& placed) -> Result<> {
    RC_ASSERT(placed.chunk.box == Box::whole(shape));
    const Extent flat = placed.chunk.flat.value_or(Extent{0, out.size()});
    RC_ASSERT(flat.begin < flat.end && flat.end <= out.size());
    for (std::uint64_t i = flat.begin; i < flat.end; ++i) {
      out[i] = {placed.where.file, (placed.where.offset - 1000) / 4 + (i - flat.begin)};
      ++seen[i];
    }
    return {};
  });
  RC_ASSERT(visited.has_value());
  for (std::uint64_t i = elements.begin; i < elements.end; ++i) RC_ASSERT(seen[i] == 1);
  return out;
}

Extent part_of(std::uint64_t count) {
  const auto begin = *rc::gen::inRange<std::uint64_t>(0, count + 1);
  return {begin, *rc::gen::inRange<std::uint64_t>(begin, count + 1)};
}

RC_GTEST_PROP(PartitionIndex, EveryElementOfAFlatGroupIsWhereTheRanksPartsPutIt, ()) {
  const auto sizes = *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(0, 40));
  const auto ranks = *rc::gen::inRange<std::uint64_t>(1, 9);
  std::uint64_t total = 0;
  for (const std::uint64_t size : sizes) total += size;
  const auto cut = cut::flat_group({.element_count = total, .part_count = ranks});
  RC_ASSERT(cut.has_value());
  PartitionIndex index;
  const std::uint32_t array = index.add_array(runs(ranks, cut->part_elements));
  std::uint64_t begin = 0;
  for (const std::uint64_t size : sizes) {
    index.add_in_group({size}, {array, *cut, begin});
    begin += size;
  }
  begin = 0;
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    const Extent asked = part_of(sizes[t]);
    const auto found = places(index, t, {sizes[t]}, asked);
    for (std::uint64_t i = asked.begin; i < asked.end; ++i) {
      const std::uint64_t flat = begin + i;
      RC_ASSERT((found[i] == Place{static_cast<std::uint32_t>(flat / cut->part_elements), flat % cut->part_elements}));
    }
    begin += sizes[t];
  }
}

RC_GTEST_PROP(PartitionIndex, EveryElementOfAPartitionedParameterIsInItsOwnersRun, ()) {
  const auto sizes = *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(0, 40));
  const auto ranks = *rc::gen::inRange<std::uint64_t>(1, 9);
  PartitionIndex index;
  const std::uint32_t array = index.add_array(runs(ranks, 0));
  std::uint64_t begin = 0;
  std::vector<std::uint64_t> begins;
  for (const std::uint64_t size : sizes) {
    const auto cut = cut::partition({.length = size, .part_count = ranks});
    RC_ASSERT(cut.has_value());
    index.add_partitioned({size}, {array, *cut, begin});
    begins.push_back(begin);
    begin += cut->part_elements;
  }
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    const std::uint64_t part = (sizes[t] + ranks - 1) / ranks;
    const Extent asked = part_of(sizes[t]);
    const auto found = places(index, t, {sizes[t]}, asked);
    for (std::uint64_t i = asked.begin; i < asked.end; ++i) {
      RC_ASSERT((found[i] == Place{static_cast<std::uint32_t>(i / part), begins[t] + i % part}));
    }
  }
}

TEST(PartitionIndexRanges, ChunksThatDoNotMeetTheRangeAreNotVisited) {
  PartitionIndex index;
  const auto cut = cut::partition({.length = 100, .part_count = 10});
  index.add_partitioned({10, 10}, {index.add_array(runs(10, 10)), *cut, 0});
  std::vector<std::uint32_t> files;
  ASSERT_TRUE(index.chunks(0, {35, 51}, [&](const PlacedChunk& placed) -> Result<> {
    files.push_back(placed.where.file);
    return {};
  }));
  EXPECT_EQ(files, (std::vector<std::uint32_t>{3, 4, 5}));
}

TEST(PartitionIndexRanges, AnErrorOfTheVisitorEndsTheWalk) {
  PartitionIndex index;
  const auto cut = cut::partition({.length = 100, .part_count = 10});
  index.add_partitioned({100}, {index.add_array(runs(10, 10)), *cut, 0});
  int visits = 0;
  const auto result = index.chunks(0, {0, 100}, [&](const PlacedChunk&) -> Result<> {
    ++visits;
    return fail(Errc::interrupted, "stop");
  });
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Errc::interrupted);
  EXPECT_EQ(visits, 1);
}

}  // namespace
}  // namespace ckpt::deepspeed
