#include "engine/run/buffer_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "engine/io/io.hpp"

namespace ckpt {
namespace {

TEST(BufferPool, HandsOutAlignedDisjointBuffersUntilEmpty) {
  auto pool = BufferPool::open({.buffer_bytes = 3 * kAlignment, .buffer_count = 5});
  ASSERT_TRUE(pool);
  std::vector<BufferPool::Buffer> buffers;
  while (auto buffer = (*pool)->try_acquire()) buffers.push_back(std::move(*buffer));
  ASSERT_EQ(buffers.size(), 5U);
  std::sort(buffers.begin(), buffers.end(), [](const auto& a, const auto& b) { return a.data() < b.data(); });
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers[i].data()) % kAlignment, 0U);
    ASSERT_EQ(buffers[i].size(), 3 * kAlignment);
    std::memset(buffers[i].data(), static_cast<int>(i), buffers[i].size());
    if (i > 0) {
      EXPECT_GE(buffers[i].data() - buffers[i - 1].data(), static_cast<std::ptrdiff_t>(3 * kAlignment));
    }
  }
}

TEST(BufferPool, ABufferThatTheKernelMayStillUseIsGivenToNobody) {
  auto pool = BufferPool::open({.buffer_bytes = kAlignment, .buffer_count = 2});
  ASSERT_TRUE(pool);
  const std::atomic<bool> never{false};
  auto first = (*pool)->try_acquire();
  ASSERT_TRUE(first);
  const std::byte* data = first->data();
  first->leave_to_kernel();
  first->reset();
  EXPECT_EQ((*pool)->buffer_count(), 1u);
  auto second = (*pool)->acquire(never);
  ASSERT_TRUE(second);
  EXPECT_NE(second->data(), data);
  EXPECT_FALSE((*pool)->try_acquire());
  second->leave_to_kernel();
  auto moved = std::move(*second);
  moved.reset();
  EXPECT_FALSE((*pool)->acquire(never)) << "nobody will ever give one back: that is no reason to wait";
}

TEST(BufferPool, AReturnedBufferIsTheNextOneGiven) {
  auto pool = BufferPool::open({.buffer_bytes = kAlignment, .buffer_count = 3});
  ASSERT_TRUE(pool);
  auto first = (*pool)->try_acquire();
  auto second = (*pool)->try_acquire();
  ASSERT_TRUE(first && second);
  const std::byte* data = first->data();
  first->reset();
  EXPECT_FALSE(*first);
  const auto again = (*pool)->try_acquire();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->data(), data);
}

TEST(BufferPool, AMovedLeaseReturnsItsBufferOnce) {
  auto pool = BufferPool::open({.buffer_bytes = kAlignment, .buffer_count = 1});
  ASSERT_TRUE(pool);
  {
    auto buffer = (*pool)->try_acquire();
    ASSERT_TRUE(buffer);
    BufferPool::Buffer moved = std::move(*buffer);
    BufferPool::Buffer assigned;
    assigned = std::move(moved);
    EXPECT_TRUE(assigned);
    EXPECT_FALSE((*pool)->try_acquire());
  }
  auto buffer = (*pool)->try_acquire();
  EXPECT_TRUE(buffer);
  EXPECT_FALSE((*pool)->try_acquire());
}

TEST(BufferPool, ThreadsNeverShareABuffer) {
  auto pool = BufferPool::open({.buffer_bytes = kAlignment, .buffer_count = 3});
  ASSERT_TRUE(pool);
  std::vector<int> collisions(4, 0);
  {
    std::vector<std::jthread> threads;
    for (int id = 0; id < 4; ++id) {
      threads.emplace_back([&pool, &collisions, id] {
        for (int round = 0; round < 5000; ++round) {
          auto buffer = (*pool)->try_acquire();
          if (!buffer) continue;
          std::memset(buffer->data(), id, 64);
          for (int i = 0; i < 64; ++i) collisions[static_cast<std::size_t>(id)] += buffer->data()[i] != std::byte(id);
        }
      });
    }
  }
  EXPECT_EQ(collisions, std::vector<int>(4, 0));
}

TEST(BufferPool, SaysWhichPagesItGot) {
  auto pool = BufferPool::open({.buffer_bytes = 4U << 20, .buffer_count = 4});
  ASSERT_TRUE(pool);
  auto buffer = (*pool)->try_acquire();
  ASSERT_TRUE(buffer);
  std::memset(buffer->data(), 1, buffer->size());
  const std::string kind = (*pool)->page_kind();
  EXPECT_TRUE(kind == "hugetlb" || kind == "transparent huge pages" || kind == "4 KiB pages") << kind;
}

TEST(BufferPool, RefusesSizesThatCannotBe) {
  const auto code = [](std::size_t bytes, std::size_t count) {
    const auto pool = BufferPool::open({.buffer_bytes = bytes, .buffer_count = count});
    return pool ? Errc::differs : pool.error().code;
  };
  EXPECT_EQ(code(0, 1), Errc::internal);
  EXPECT_EQ(code(kAlignment, 0), Errc::internal);
  EXPECT_EQ(code(kAlignment + 512, 1), Errc::internal);
  EXPECT_EQ(code(SIZE_MAX / kAlignment * kAlignment, 2), Errc::memory);
  EXPECT_EQ(code(std::size_t{1} << 46, 1), Errc::memory);  // fits the arithmetic, not the machine
}

}  // namespace
}  // namespace ckpt
