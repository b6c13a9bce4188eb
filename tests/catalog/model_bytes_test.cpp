#include "catalog/model_bytes.hpp"

#include <gtest/gtest.h>

namespace ckpt::catalog {
namespace {

TEST(ModelBytes, TotalsAreThoseOfTheTable) {
  const StateBytes mixed = *state_preset("mixed");
  EXPECT_DOUBLE_EQ(disk_bytes(8e9, mixed, {}).total, 112e9);
  EXPECT_DOUBLE_EQ(disk_bytes(70e9, mixed, {}).total, 980e9);
  EXPECT_DOUBLE_EQ(disk_bytes(405e9, mixed, {}).total, 5670e9);
  EXPECT_DOUBLE_EQ(disk_bytes(70e9, *state_preset("weights"), {}).total, 140e9);
  EXPECT_DOUBLE_EQ(disk_bytes(70e9, *state_preset("fp32"), {}).total, 840e9);
  EXPECT_DOUBLE_EQ(state_preset("mixed-8bit")->saved(), 8);
  EXPECT_DOUBLE_EQ(state_preset("mixed-bf16-moments")->saved(), 10);
  EXPECT_EQ(state_preset("mixd").error().hint, "did you mean 'mixed'?");
}

TEST(ModelBytes, AWritingRanksShareFollowsTheStage) {
  const StateBytes mixed;
  Sharding sharding{.tensor = 2, .pipeline = 4, .data = 10};
  DiskBytes disk = disk_bytes(8e9, mixed, sharding);  // 14 bytes, 80 ranks, slices of 1e9
  EXPECT_DOUBLE_EQ(disk.largest_rank, 14e9);
  EXPECT_DOUBLE_EQ(disk.smallest_rank, 0);
  for (const int stage : {1, 2}) {
    sharding.zero_stage = stage;
    disk = disk_bytes(8e9, mixed, sharding);
    EXPECT_DOUBLE_EQ(disk.smallest_rank, 1.2e9);
    EXPECT_DOUBLE_EQ(disk.largest_rank, 1.2e9 + 2e9);
  }
  sharding.zero_stage = 3;
  EXPECT_DOUBLE_EQ(disk_bytes(8e9, mixed, sharding).largest_rank, 1.4e9);
  sharding.zero_stage = 0;
  sharding.replica_parallel = true;
  EXPECT_DOUBLE_EQ(disk_bytes(8e9, mixed, sharding).largest_rank, 1.4e9);
}

const MemoryBytes& row(const std::vector<MemoryBytes>& table, int stage, Offload offload) {
  for (const MemoryBytes& one : table) {
    if (one.zero_stage == stage && one.offload == offload) return one;
  }
  ADD_FAILURE() << "no such row";
  return table.front();
}

TEST(ModelBytes, MemoryIsThatOfTheZeroPaper) {
  // Its example: 7.5 billion parameters on 64 GPUs: 120, 31.4, 16.6 and 1.9 GB.
  const auto table = memory_table(7.5e9, {}, {.data = 64});
  EXPECT_NEAR(row(table, 0, Offload::none).gpu / 1e9, 120, 0.1);
  EXPECT_NEAR(row(table, 1, Offload::none).gpu / 1e9, 31.4, 0.05);
  EXPECT_NEAR(row(table, 2, Offload::none).gpu / 1e9, 16.6, 0.05);
  EXPECT_NEAR(row(table, 3, Offload::none).gpu / 1e9, 1.9, 0.05);
}

TEST(ModelBytes, OffloadMovesBytesAndLosesNone) {
  const auto table = memory_table(13e9, {}, {.tensor = 2, .data = 8});
  EXPECT_EQ(table.size(), 10u);
  for (const MemoryBytes& one : table) {
    const MemoryBytes& all = row(table, one.zero_stage, Offload::none);
    EXPECT_NEAR(one.gpu + one.host + one.nvme, all.gpu, 1) << one.zero_stage << " " << offload_name(one.offload);
  }
  EXPECT_DOUBLE_EQ(row(table, 3, Offload::all_nvme).gpu, 0);
  EXPECT_DOUBLE_EQ(row(table, 3, Offload::optimizer_nvme).nvme, 6.5e9 * 12 / 8);
}

TEST(ModelBytes, ParametersAreReadAsPeopleWriteThem) {
  EXPECT_DOUBLE_EQ(*parse_parameters("7B"), 7e9);
  EXPECT_DOUBLE_EQ(*parse_parameters("1.3b"), 1.3e9);
  EXPECT_DOUBLE_EQ(*parse_parameters("350M"), 350e6);
  EXPECT_DOUBLE_EQ(*parse_parameters("7_000_000_000"), 7e9);
  for (const char* bad : {"", "B", "0", "-1B", "7G", "nan", "1e9", "7 billion", "9999999999T"})
    EXPECT_FALSE(parse_parameters(bad)) << bad;
}

}  // namespace
}  // namespace ckpt::catalog
