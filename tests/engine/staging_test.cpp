// What a save's memory side owes its run: the same failure, and every buffer back.
#include "engine/run/staging.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "engine/publish/publish.hpp"
#include "engine/run/run.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"

namespace ckpt {
namespace {

/// A tensor of some leaves in memory, and the file that it becomes.
class StagingTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kLeaves = 3;
  void SetUp() override {
    const std::uint64_t bytes = kLeaves * kLeafBytes;
    map_.tensors = {{.name = "t", .dtype = Dtype::u8, .shape = {bytes}}};
    map_.files = {{.path = "t", .bytes = bytes}};
    auto index = std::make_shared<ChunkTable>(1);
    index->add(0, {bytes}, {.box = Box::whole({bytes})}, {.dtype = Dtype::u8});
    index->seal();
    map_.index = std::move(index);
    TargetFile file{.path = "out", .bytes = bytes};
    file.placements.push_back({.bytes = bytes, .dtype = Dtype::u8});
    auto plan = Plan::make(map_, {file});
    ASSERT_TRUE(plan) << plan.error().message;
    plan_.emplace(std::move(*plan));
    auto pool = BufferPool::open({.buffer_bytes = kRunBufferBytes, .buffer_count = kLeaves});
    ASSERT_TRUE(pool);
    pool_ = std::move(*pool);
  }
  std::vector<MemorySource> source(std::function<Result<>(std::byte*, std::uint64_t, std::uint64_t)> fill) const {
    return {{.bytes = kLeaves * kLeafBytes, .fill = std::move(fill)}};
  }
  std::size_t free_buffers() const {
    std::vector<BufferPool::Buffer> buffers;
    while (auto buffer = pool_->try_acquire()) buffers.push_back(std::move(*buffer));
    return buffers.size();
  }

  Map map_{};
  std::optional<Plan> plan_{};
  std::unique_ptr<BufferPool> pool_{};
};

TEST_F(StagingTest, LeavesFilledAfterTheRunHasEndedGiveTheirBuffersBack) {
  Staging* running = nullptr;
  const auto sources = source([&](std::byte*, std::uint64_t, std::uint64_t) -> Result<> {
    running->close();  // as when the disk is full while the trainer's memory is copied
    return {};
  });
  Staging staging(*plan_, sources, *pool_);
  running = &staging;
  const auto filled = staging.fill(2);
  ASSERT_FALSE(filled);
  EXPECT_EQ(filled.error().code, Errc::interrupted) << filled.error().message;
  EXPECT_EQ(free_buffers(), kLeaves);
}

TEST_F(StagingTest, WhoTakesFromWhatWasClosedBeforeItsEndFails) {
  const auto sources = source([](std::byte*, std::uint64_t, std::uint64_t) -> Result<> { return {}; });
  Staging staging(*plan_, sources, *pool_);
  staging.close();  // the other ranks are lost: nobody will fill it
  const auto taken = staging.take(std::chrono::minutes(1));
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Errc::interrupted) << taken.error().message;
}

TEST_F(StagingTest, WhatWasTakenToItsEndIsNoFailureWhenItIsClosed) {
  const auto sources = source([](std::byte*, std::uint64_t, std::uint64_t) -> Result<> { return {}; });
  Staging staging(*plan_, sources, *pool_);
  const auto filled = staging.fill(1);
  ASSERT_TRUE(filled) << filled.error().message;
  for (std::uint64_t i = 0; i < kLeaves; ++i) ASSERT_TRUE(staging.take(std::chrono::milliseconds(0)));
  staging.close();
  const auto none = staging.take(std::chrono::milliseconds(0));
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_FALSE(*none);
}

TEST_F(StagingTest, WhatAQueueThatBreaksStillHoldsIsGivenToNobody) {
  const auto sources = source([](std::byte*, std::uint64_t, std::uint64_t) -> Result<> { return {}; });
  const MemoryDisk disk;
  const auto faults = std::make_shared<FaultPlan>();
  {
    const auto io = make_fault_io(disk.io(), faults);
    ASSERT_TRUE(io->make_dir("/d"));
    ASSERT_TRUE(make_files(*io, "/d", plan_->targets()));
    Staging staging(*plan_, sources, *pool_);
    ASSERT_TRUE(staging.fill(1));
    faults->break_queues();
    const auto solo = Comm::solo();
    RunOptions options;
    options.target_root = "/d";
    options.pool = pool_.get();
    options.staging = &staging;
    EXPECT_FALSE(run(*plan_, *io, *solo, options));
    staging.close();
  }
  EXPECT_LT(pool_->buffer_count(), kLeaves);
  EXPECT_EQ(free_buffers(), pool_->buffer_count());
}

TEST_F(StagingTest, WhatACallbackThrowsOnAnyThreadIsTheSavesFailure) {
  const auto sources = source([](std::byte*, std::uint64_t, std::uint64_t) -> Result<> { throw std::bad_alloc(); });
  for (const unsigned threads : {1u, 3u}) {
    Staging staging(*plan_, sources, *pool_);
    const auto filled = staging.fill(threads);
    ASSERT_FALSE(filled);
    EXPECT_EQ(filled.error().code, Errc::memory) << filled.error().message;
    const auto taken = staging.take(std::chrono::milliseconds(0));
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, Errc::memory);
  }
}

TEST_F(StagingTest, AHashMadeInFillingIsThatOfTheBytesInTheBuffer) {
  std::vector<std::byte> memory(kLeaves * kLeafBytes);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  const std::vector<MemorySource> array{{.data = memory.data(), .bytes = memory.size()}};
  const auto callback = source([&](std::byte* out, std::uint64_t offset, std::uint64_t size) -> Result<> {
    std::copy_n(memory.data() + offset, size, out);
    return {};
  });
  for (const auto& sources : {array, callback}) {
    Staging staging(*plan_, sources, *pool_);
    ASSERT_TRUE(staging.fill(2, true));
    for (std::uint64_t i = 0; i < kLeaves; ++i) {
      const auto leaf = staging.take(std::chrono::milliseconds(0));
      ASSERT_TRUE(leaf && *leaf && (*leaf)->hash);
      const std::span<const std::byte> bytes((*leaf)->buffer.data(), static_cast<std::size_t>(kLeafBytes));
      EXPECT_EQ((*leaf)->hash->hex(), hash128(bytes).hex());
      const auto* wanted = memory.data() + (*leaf)->position * kLeafBytes;
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), wanted));
    }
  }
}

TEST_F(StagingTest, WhatNoTensorCoversIsZeroWhateverTheBufferHeld) {
  constexpr std::uint64_t kBytes = 100;
  constexpr std::uint64_t kAt = 4096;
  Map map;
  map.tensors = {{.name = "t", .dtype = Dtype::u8, .shape = {kBytes}}};
  map.files = {{.path = "t", .bytes = kBytes}};
  auto index = std::make_shared<ChunkTable>(1);
  index->add(0, {kBytes}, {.box = Box::whole({kBytes})}, {.dtype = Dtype::u8});
  index->seal();
  map.index = std::move(index);
  TargetFile file{.path = "out", .bytes = 2 * kAt};
  file.placements.push_back({.offset = kAt, .bytes = kBytes, .dtype = Dtype::u8});
  const auto plan = Plan::make(map, {file});
  ASSERT_TRUE(plan) << plan.error().message;
  {
    std::vector<BufferPool::Buffer> used;
    while (auto buffer = pool_->try_acquire()) used.push_back(std::move(*buffer));
    for (BufferPool::Buffer& buffer : used) std::fill_n(buffer.data(), 2 * kAt, std::byte{0xAA});
  }
  const std::vector<std::byte> memory(kBytes, std::byte{7});
  const std::vector<MemorySource> sources{{.data = memory.data(), .bytes = memory.size()}};
  Staging staging(*plan, sources, *pool_);
  ASSERT_TRUE(staging.fill(1));
  const auto leaf = staging.take(std::chrono::milliseconds(0));
  ASSERT_TRUE(leaf && *leaf);
  for (std::uint64_t i = 0; i < 2 * kAt; ++i) {
    const bool covered = i >= kAt && i < kAt + kBytes;
    ASSERT_EQ((*leaf)->buffer.data()[i], covered ? std::byte{7} : std::byte{0}) << i;
  }
}

TEST_F(StagingTest, WhoOnlyWantsTheCopyDoesNotPayForAHash) {
  const std::vector<std::byte> memory(kLeaves * kLeafBytes);
  const std::vector<MemorySource> sources{{.data = memory.data(), .bytes = memory.size()}};
  Staging staging(*plan_, sources, *pool_);
  ASSERT_TRUE(staging.fill(1));
  const auto leaf = staging.take(std::chrono::milliseconds(0));
  ASSERT_TRUE(leaf && *leaf);
  EXPECT_FALSE((*leaf)->hash);
}

}  // namespace
}  // namespace ckpt
