#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/run/plan.hpp"

namespace ckpt {
namespace {

/// An F4 tensor of 4 rows of 4 elements, two bytes each, and the plan that writes it whole.
Result<Plan> plan_of(Map& map, std::vector<std::pair<Chunk, std::uint64_t>> chunks, bool check_replicas = false) {
  map.tensors = {{.name = "t", .dtype = Dtype::f4, .shape = {4, 4}}};
  map.files = {{.path = "f", .bytes = 100}};
  auto index = std::make_shared<ChunkTable>(1);
  for (auto& [chunk, offset] : chunks) index->add(0, {4, 4}, std::move(chunk), {.offset = offset, .dtype = Dtype::f4});
  index->seal();
  map.index = std::move(index);
  return Plan::make(map, {{.path = "out", .bytes = 8, .placements = {{.bytes = 8, .dtype = Dtype::f4}}}},
                    {.check_replicas = check_replicas});
}
Chunk rows(std::uint64_t begin, std::uint64_t end) {
  return {Box::whole({4, 4}), Extent{begin * 4, end * 4}};
}

TEST(PackedPlan, RowsOfAPackedTensorAreJoinedAsBytes) {
  Map map;
  const auto plan = plan_of(map, {{rows(3, 4), 50}, {rows(0, 3), 10}});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  const auto job = plan->leaf(0);
  ASSERT_TRUE(job.has_value()) << job.error().message;
  ASSERT_EQ(job->copies.size(), 2u);
  EXPECT_EQ(job->copies[0].source_offset, 10u);
  EXPECT_EQ(job->copies[0].target_offset, 0u);
  EXPECT_EQ(job->copies[0].dims[0].count, 6u);
  EXPECT_EQ(job->copies[1].source_offset, 50u);
  EXPECT_EQ(job->copies[1].target_offset, 6u);
  EXPECT_EQ(job->copies[1].dims[0].count, 2u);
}

TEST(PackedPlan, ReplicasAreReadOnce) {
  Map map;
  const auto plan = plan_of(map, {{rows(0, 4), 10}, {rows(0, 4), 50}});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  const auto job = plan->leaf(0);
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->copies.size(), 1u);
}

TEST(PackedPlan, AMissingRowIsUncovered) {
  Map map;
  const auto plan = plan_of(map, {{rows(0, 1), 10}, {rows(2, 4), 50}});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  const auto job = plan->leaf(0);
  ASSERT_FALSE(job.has_value());
  EXPECT_EQ(job.error().code, Errc::uncovered);
}

TEST(PackedPlan, AReplicaFillsNoHole) {
  Map map;
  const Chunk left{{{0, 0}, {4, 2}}};
  const auto plan = plan_of(map, {{left, 10}, {left, 50}}, true);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  const auto job = plan->leaf(0);
  ASSERT_FALSE(job.has_value());
  EXPECT_EQ(job.error().code, Errc::uncovered);
}

TEST(PackedPlan, ColumnsOfWholeBytesAreJoined) {
  Map map;
  const auto plan = plan_of(map, {{{{{0, 0}, {4, 2}}}, 10}, {{{{0, 2}, {4, 2}}}, 50}});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  const auto job = plan->leaf(0);
  ASSERT_TRUE(job.has_value()) << job.error().message;
  ASSERT_EQ(job->copies.size(), 2u);
  for (std::uint64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(job->copies[i].source_offset, i == 0 ? 10u : 50u);
    EXPECT_EQ(job->copies[i].target_offset, i);
    ASSERT_EQ(job->copies[i].dims.size(), 1u);
    EXPECT_EQ(job->copies[i].dims[0].count, 4u);
    EXPECT_EQ(job->copies[i].dims[0].source_stride, 1u);
    EXPECT_EQ(job->copies[i].dims[0].target_stride, 2u);
  }
}

TEST(PackedPlan, APartOfAPackedTensorIsPlacedByItsBytes) {
  Map map;
  ASSERT_TRUE(plan_of(map, {{rows(0, 4), 10}}));
  const Placement columns{.bytes = 4, .chunk = Chunk{{{0, 2}, {4, 2}}}, .dtype = Dtype::f4};
  const auto plan = Plan::make(map, {{.path = "out", .bytes = 4, .placements = {columns}}});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  const auto job = plan->leaf(0);
  ASSERT_TRUE(job.has_value()) << job.error().message;
  ASSERT_EQ(job->copies.size(), 1u);
  EXPECT_EQ(job->copies[0].source_offset, 11u);
  ASSERT_EQ(job->copies[0].dims.size(), 1u);
  EXPECT_EQ(job->copies[0].dims[0].count, 4u);
  EXPECT_EQ(job->copies[0].dims[0].source_stride, 2u);
  EXPECT_EQ(job->copies[0].dims[0].target_stride, 1u);
}

TEST(PackedPlan, ACutInsideAByteIsUnsupported) {
  for (const Chunk& part : {Chunk{{{0, 0}, {4, 1}}}, Chunk{Box::whole({4, 4}), Extent{0, 3}}}) {
    Map map;
    const auto plan = plan_of(map, {{part, 10}});
    ASSERT_TRUE(plan.has_value()) << plan.error().message;
    const auto job = plan->leaf(0);
    ASSERT_FALSE(job.has_value());
    EXPECT_EQ(job.error().code, Errc::unsupported);
  }
}

}  // namespace
}  // namespace ckpt
