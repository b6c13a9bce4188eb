// What readers with buffers of their own do with them when a queue breaks: the kernel may write to them for as long as
// it likes, so their memory is nobody's any more.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "convert/dcp/ranges.hpp"
#include "convert/torch_stream.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kPieceBytes = 40 << 10;  // small enough that the heap gives it out again
constexpr std::uint64_t kPieces = 6;
constexpr std::uint64_t kStride = std::uint64_t{4} << 20;  // apart, so that none is read with another

class BrokenQueue : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override {
    const auto io = disk_.io();
    const auto file = io->open("/f", {.mode = OpenOptions::Mode::write_new});
    ASSERT_TRUE(file);
    const std::vector<std::byte> bytes(static_cast<std::size_t>(kPieces * kStride + kPieceBytes), std::byte{7});
    ASSERT_TRUE(io->write_at(*file, 0, bytes));
    ASSERT_TRUE(io->close(*file));
    faults_->hold_requests();
    faults_->count_only({"read"});
    faults_->call_at(GetParam(), [faults = faults_.get()] { faults->break_queues(); });
  }

  /// Whoever allocates now gets what was freed; the kernel must not write there.
  void expect_untouched() {
    std::vector<std::vector<std::byte>> others;
    for (int i = 0; i < 200; ++i) others.emplace_back(kPieceBytes, std::byte{0x55});
    EXPECT_GT(faults_->finish_late().reads, 0U);
    for (const auto& other : others)
      EXPECT_TRUE(std::ranges::all_of(other, [](std::byte b) { return b == std::byte{0x55}; }));
  }

  const MemoryDisk disk_{};
  const std::shared_ptr<FaultPlan> faults_ = std::make_shared<FaultPlan>();
};

TEST_P(BrokenQueue, RangesOfADcpFileAreFreedByNobody) {
  {
    dcp::RangeReader reader(make_fault_io(disk_.io(), faults_), {"/f"});
    std::vector<dcp::Range> ranges;
    for (std::uint64_t i = 0; i < kPieces; ++i) ranges.push_back({0, {i * kStride, i * kStride + kPieceBytes}});
    const auto read = reader.read(std::move(ranges));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, Errc::io);
  }
  expect_untouched();
}

TEST_P(BrokenQueue, PiecesOfATorchStreamAreFreedByNobody) {
  {
    const auto io = make_fault_io(disk_.io(), faults_);
    const auto file = io->open("/f", {});
    ASSERT_TRUE(file);
    const std::string path = "/f";
    StreamReader reader(*io, *file, path, {0, kPieces * kStride + kPieceBytes});
    std::vector<std::uint64_t> begins;
    for (std::uint64_t i = 0; i < kPieces; ++i) begins.push_back(i * kStride);
    const auto read = reader.read_each(begins, kPieceBytes, [](std::size_t, auto) -> Result<> { return {}; });
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, Errc::io);
  }
  expect_untouched();
}

INSTANTIATE_TEST_SUITE_P(At, BrokenQueue, testing::Values(0, 2, 5));

}  // namespace
}  // namespace ckpt
