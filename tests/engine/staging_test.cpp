// What a save's memory side owes its run: the same failure, and every buffer back.
#include "engine/staging.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "engine/run.hpp"

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
    std::vector<BufferPool::Lease> leases;
    while (auto lease = pool_->try_acquire()) leases.push_back(std::move(*lease));
    return leases.size();
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

}  // namespace
}  // namespace ckpt
