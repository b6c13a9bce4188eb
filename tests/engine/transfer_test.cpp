// What follows a short, interrupted or failed call, without a kernel that has to be talked into making one.
#include "engine/io/transfer.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/io/unique_fd.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kBlock = kAlignment;
const auto kPath = std::make_shared<const std::string>("file");

std::byte* const kData = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);  // counted from, never touched

Request read_of(std::size_t bytes, std::uint64_t offset = 0) {
  return {.op = Request::Op::read, .offset = offset, .data = kData, .bytes = bytes, .tag = 7};
}
Request write_of(std::size_t bytes, std::uint64_t offset = 0) {
  return {.op = Request::Op::write, .offset = offset, .data = kData, .bytes = bytes, .tag = 7};
}

/// A file of this size in memory, for the transfers that ask where it ends.
UniqueFd file_of(std::uint64_t bytes) {
  UniqueFd fd(::memfd_create("transfer", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  return fd;
}

TEST(Transfer, EveryShortReadIsContinuedWhereItStopped) {
  for (std::int64_t first = 1; first < 10; ++first) {
    Transfer transfer(read_of(10, 100), -1, false, kPath);
    ASSERT_FALSE(transfer.advance(first));
    const auto done = static_cast<std::size_t>(first);
    EXPECT_EQ(transfer.next().offset, 100 + done);
    EXPECT_EQ(transfer.next().data, kData + done);
    EXPECT_EQ(transfer.next().bytes, 10 - done);
    ASSERT_TRUE(transfer.advance(10 - first));
    const Completion completion = std::move(transfer).completion();
    EXPECT_EQ(completion.tag, 7U);
    EXPECT_EQ(completion.bytes.value_or(0), 10U);
  }
}

TEST(Transfer, AReadEndsShortAtTheEndOfTheFile) {
  Transfer transfer(read_of(10), -1, false, kPath);
  ASSERT_FALSE(transfer.advance(4));
  ASSERT_TRUE(transfer.advance(0));
  EXPECT_EQ(std::move(transfer).completion().bytes.value_or(99), 4U);
}

TEST(Transfer, AWriteThatMovesNothingIsAnError) {
  Transfer transfer(write_of(10, 50), -1, false, kPath);
  ASSERT_FALSE(transfer.advance(4));
  ASSERT_TRUE(transfer.advance(0));
  const auto result = std::move(transfer).completion().bytes;
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::io);
  EXPECT_EQ(result.error().offset, 54U);
  EXPECT_EQ(result.error().message, "file: cannot write at offset 54: Input/output error");
}

TEST(Transfer, InterruptedCallsAreMadeAgainUnchanged) {
  for (const int reason : {EINTR, EAGAIN}) {
    Transfer transfer(write_of(10), -1, false, kPath);
    ASSERT_FALSE(transfer.advance(3));
    ASSERT_FALSE(transfer.advance(-reason));
    EXPECT_EQ(transfer.next().offset, 3U);
    EXPECT_EQ(transfer.next().bytes, 7U);
    ASSERT_TRUE(transfer.advance(7));
    EXPECT_EQ(std::move(transfer).completion().bytes.value_or(0), 10U);
  }
}

TEST(Transfer, InterruptionWithoutEndIsAnError) {
  Transfer transfer(write_of(10), -1, false, kPath);
  unsigned calls = 0;
  while (!transfer.advance(-EAGAIN)) ASSERT_LT(++calls, 100'000U);
  EXPECT_EQ(std::move(transfer).completion().bytes.error().code, Errc::io);
}

TEST(Transfer, ErrorsKeepTheirMeaning) {
  const auto code = [](int reason) {
    Transfer transfer(write_of(10), -1, false, kPath);
    EXPECT_TRUE(transfer.advance(-reason));
    return std::move(transfer).completion().bytes.error().code;
  };
  EXPECT_EQ(code(ENOSPC), Errc::no_space);
  EXPECT_EQ(code(EDQUOT), Errc::no_space);
  EXPECT_EQ(code(EIO), Errc::io);
  EXPECT_EQ(code(ECANCELED), Errc::io);
}

TEST(Transfer, OneCallNeverAsksForMoreThanTheSystemMoves) {
  Transfer transfer(read_of(std::size_t{5} << 30), -1, true, kPath);
  std::uint64_t moved = 0;
  for (bool over = false; !over;) {
    const Transfer::Step step = transfer.next();
    ASSERT_LE(step.bytes, 0x7ffff000U);
    ASSERT_EQ(step.offset % kAlignment, 0U);
    moved += step.bytes;
    over = transfer.advance(static_cast<std::int64_t>(step.bytes));
  }
  EXPECT_EQ(moved, std::uint64_t{5} << 30);
}

TEST(DirectTransfer, ContinuesOnlyFromAlignedPlaces) {
  const UniqueFd file = file_of(100 * kBlock);
  for (const std::size_t moved : {std::size_t{1}, kBlock - 1, kBlock, kBlock + 1, 3 * kBlock + 512}) {
    for (const bool reading : {false, true}) {
      Transfer transfer(reading ? read_of(4 * kBlock, kBlock) : write_of(4 * kBlock, kBlock), file.get(), true, kPath);
      ASSERT_FALSE(transfer.advance(static_cast<std::int64_t>(moved)));
      const Transfer::Step step = transfer.next();
      EXPECT_EQ(step.offset, kBlock + moved / kBlock * kBlock) << moved;
      EXPECT_EQ(step.bytes, 4 * kBlock - moved / kBlock * kBlock) << moved;
      ASSERT_TRUE(transfer.advance(static_cast<std::int64_t>(step.bytes)));
      EXPECT_EQ(std::move(transfer).completion().bytes.value_or(0), 4 * kBlock) << moved;
    }
  }
}

TEST(DirectTransfer, AReadThatReachesTheUnalignedEndIsOverAtOnce) {
  const UniqueFd file = file_of(2 * kBlock + 777);
  Transfer transfer(read_of(4 * kBlock), file.get(), true, kPath);
  ASSERT_TRUE(transfer.advance(2 * kBlock + 777));
  EXPECT_EQ(std::move(transfer).completion().bytes.value_or(0), 2 * kBlock + 777);
}

TEST(DirectTransfer, PartialBlocksWithoutProgressAreAnErrorNotALoop) {
  const UniqueFd file = file_of(100 * kBlock);
  Transfer transfer(write_of(4 * kBlock), file.get(), true, kPath);
  unsigned calls = 0;
  while (!transfer.advance(512)) ASSERT_LT(++calls, 100'000U);
  EXPECT_EQ(std::move(transfer).completion().bytes.error().code, Errc::io);
}

}  // namespace
}  // namespace ckpt
