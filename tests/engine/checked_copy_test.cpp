// The copy of a tier to the next: the same bytes or none, no faster than it may be, and it ends when it is told to.
#include "engine/run/checked_copy.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/publish/publish.hpp"
#include "engine/run/run.hpp"
#include "format/hash.hpp"
#include "support/memory_io.hpp"

namespace ckpt {
namespace {

using namespace std::chrono_literals;

class CheckedCopyTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<std::uint64_t> sizes = {0, 1, kLeafBytes, 2 * kLeafBytes + 5000};
    for (const std::uint64_t bytes : sizes) {
      const std::string name = "f" + std::to_string(files_.size());
      std::string text(bytes, ' ');
      for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>((i * 2654435761u + bytes) >> 13);
      disk_.put("/from/" + name, text);
      for (std::uint64_t at = 0; at < bytes; at += kLeafBytes) {
        leaves_.push_back(hash128(std::string_view(text).substr(at, kLeafBytes)));
      }
      files_.push_back({.path = name, .bytes = bytes});
      total_ += bytes;
    }
    disk_.put("/to/other", "");
    pool_ = BufferPool::open({.buffer_bytes = kRunBufferBytes, .buffer_count = 4}).value();
    ASSERT_TRUE(make_files(*io_, "/to", targets_of(files_)));
  }
  CheckedCopy copy() const {
    return {.source_root = "/from", .target_root = "/to", .files = files_, .leaves = leaves_, .pool = pool_.get()};
  }

  MemoryDisk disk_;
  const std::unique_ptr<Io> io_ = disk_.io();
  std::unique_ptr<BufferPool> pool_;
  std::vector<MapFile> files_;
  std::vector<Hash128> leaves_;
  std::uint64_t total_ = 0;
};

TEST_F(CheckedCopyTest, FilesArriveWholeAtTheirExactSizes) {
  const auto done = copy_checked(*io_, copy());
  ASSERT_TRUE(done) << done.error().message;
  for (const MapFile& file : files_) {
    EXPECT_TRUE(disk_.text("/to/" + file.path) == disk_.text("/from/" + file.path)) << file.path;
  }
}

TEST_F(CheckedCopyTest, ALeafThatIsNotWhatWasSavedFailsTheCopyAndIsNotWritten) {
  leaves_[3].bytes[0] ^= 1;  // the second leaf of the last file
  const auto done = copy_checked(*io_, copy());
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::checksum) << done.error().message;
  EXPECT_EQ(done.error().file, "/from/f3");
  EXPECT_EQ(done.error().offset, kLeafBytes);
  const std::string leaf(disk_.text("/to/f3").substr(kLeafBytes, kLeafBytes));
  EXPECT_TRUE(leaf == std::string(leaf.size(), '\0'));
}

TEST_F(CheckedCopyTest, BytesTakeAtLeastTheTimeThatTheLimitGivesThem) {
  CheckedCopy limited = copy();
  limited.bytes_per_second = 40'000'000;
  const auto start = std::chrono::steady_clock::now();
  const auto done = copy_checked(*io_, limited);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_GE(took.count(), static_cast<double>(total_) / 4e7);
}

TEST_F(CheckedCopyTest, ACopyThatWouldTakeForEverEndsWhenItIsStopped) {
  const std::atomic<bool> stop{true};
  CheckedCopy endless = copy();
  endless.bytes_per_second = 1;
  endless.stop = &stop;
  const auto done = copy_checked(*io_, endless);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::interrupted) << done.error().message;
}

TEST_F(CheckedCopyTest, HashesOfOtherFilesAreRefused) {
  leaves_.pop_back();
  const auto done = copy_checked(*io_, copy());
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::internal) << done.error().message;
}

}  // namespace
}  // namespace ckpt
