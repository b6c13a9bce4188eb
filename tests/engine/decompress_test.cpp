// Sources that are compressed: decoded in bounded memory, each about once, to the same bytes as plain ones.
#include "engine/run/decompress.hpp"

#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/run/run.hpp"
#include "support/memory_io.hpp"
#include "support/thread_comm.hpp"

namespace ckpt::test {
namespace {

/// One frame with a checksum.
std::string compressed(const std::string& bytes) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, 1);
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), bytes.data(), bytes.size()));
  ZSTD_freeCCtx(context);
  return out;
}

/// Bytes that a compressor can do a little with.
std::string some_bytes(std::size_t count, std::uint32_t seed) {
  std::string out(count, '\0');
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<char>((i / 3 * 2654435761u + seed) >> 22);
  return out;
}

Compressed unit(std::uint64_t begin, std::uint64_t stored, std::uint64_t bytes) {
  return {.stored = {begin, begin + stored}, .bytes = bytes};
}

class DecompressorTest : public testing::Test {
 protected:
  /// Reads a stream that stands at byte 5 of a file, `step` bytes at a time.
  Result<std::string> read(const std::string& stored, std::uint64_t bound, std::size_t step) {
    disk_.put("/f", "*****" + stored + "behind");
    const auto file = io_->open("/f", {});
    auto decompressor = Decompressor::make(unit(5, stored.size(), bound), "/f");
    EXPECT_TRUE(file && decompressor);
    std::string out;
    std::vector<std::byte> room(step);
    for (;;) {
      auto got = decompressor->read(*io_, *file, room);
      if (!got) return tl::unexpected<Error>(std::move(got).error());
      out.append(reinterpret_cast<const char*>(room.data()), *got);
      if (*got < step) return out;
    }
  }
  MemoryDisk disk_;
  std::unique_ptr<Io> io_ = disk_.io();
};

TEST_F(DecompressorTest, GivesAllBytesInAnySteps) {
  const std::string bytes = some_bytes(700'001, 1);
  for (const std::size_t step : {1000u, 65'536u, 1u << 20}) {
    const auto out = read(compressed(bytes), bytes.size(), step);
    ASSERT_TRUE(out.has_value()) << out.error().message;
    EXPECT_TRUE(*out == bytes) << step;
  }
}

TEST_F(DecompressorTest, ABombEndsAtItsBound) {
  const auto out = read(compressed(std::string(std::size_t{50} << 20, '\0')), 1 << 20, 4096);
  ASSERT_FALSE(out.has_value());
  EXPECT_EQ(out.error().code, Errc::corrupt);
  EXPECT_NE(out.error().message.find("more than 1048576 bytes"), std::string::npos) << out.error().message;
  EXPECT_EQ(out.error().file, "/f");
  EXPECT_TRUE(out.error().offset.has_value());
}

TEST_F(DecompressorTest, EveryTruncationIsCorrupt) {
  const std::string bytes = some_bytes(20'000, 2);
  const std::string stored = compressed(bytes);
  for (std::size_t count = 0; count < stored.size(); count += 7) {
    const auto out = read(stored.substr(0, count), bytes.size(), 4096);
    ASSERT_FALSE(out.has_value()) << count;
    EXPECT_EQ(out.error().code, Errc::corrupt) << count;
  }
}

TEST_F(DecompressorTest, BytesBehindTheStreamAreCorrupt) {
  const auto out = read(compressed("abc") + "rubbish", 3, 4096);
  ASSERT_FALSE(out.has_value());
  EXPECT_EQ(out.error().code, Errc::corrupt);
}

/// A tensor of bytes, 3000 rows of 4001, cut into compressed columns or rows over two files.
class CompressedRun : public testing::Test {
 protected:
  static constexpr std::uint64_t kRows = 3000;
  static constexpr std::uint64_t kColumns = 4001;

  void cut(const std::vector<Box>& boxes) {
    whole_ = some_bytes(kRows * kColumns, 3);
    ChunkTable table(1);
    std::string files[2];
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      std::string bytes = "head";  // the tensor's bytes need not begin the stream
      for (std::uint64_t r = 0; r < boxes[i].size[0]; ++r) {
        bytes += whole_.substr((boxes[i].offset[0] + r) * kColumns + boxes[i].offset[1], boxes[i].size[1]);
      }
      std::string& file = files[i % 2];
      const std::string stored = compressed(bytes);
      stored_ += stored.size();
      table.add(0, {kRows, kColumns}, {boxes[i]},
                {.file = static_cast<std::uint32_t>(i % 2),
                 .offset = 4,
                 .dtype = Dtype::u8,
                 .compressed = unit(file.size(), stored.size(), bytes.size())});
      file += stored;
    }
    table.seal();
    map_.index = std::make_shared<ChunkTable>(std::move(table));
    map_.tensors = {{.name = "t", .dtype = Dtype::u8, .shape = {kRows, kColumns}}};
    map_.files = {{.path = "a", .bytes = files[0].size()}, {.path = "b", .bytes = files[1].size()}};
    map_.compressed = true;
    disk_.put("/source/a", files[0]);
    disk_.put("/source/b", files[1]);
  }

  Result<RunReport> convert() {
    const std::uint64_t bytes = kRows * kColumns;
    disk_.put("/target/out", std::string(bytes, '\0'));
    auto plan =
        Plan::make(map_, {{.path = "out", .bytes = bytes, .placements = {{.bytes = bytes, .dtype = Dtype::u8}}}});
    EXPECT_TRUE(plan.has_value());
    const auto comm = Comm::solo();
    return run(*plan, *io_, *comm,
               {.source_root = "/source", .target_root = "/target", .pool_bytes = smallest_pool_bytes(1)});
  }

  MemoryDisk disk_;
  std::unique_ptr<Io> io_ = disk_.io();
  Map map_;
  std::string whole_;
  std::uint64_t stored_ = 0;
};

TEST_F(CompressedRun, RowsAreDecodedOnceInTheSmallestPool) {
  cut({{{0, 0}, {1499, kColumns}}, {{1499, 0}, {1, kColumns}}, {{1500, 0}, {1500, kColumns}}});
  const auto report = convert();
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_TRUE(disk_.text("/target/out") == whole_);
  EXPECT_LE(report->read_bytes, stored_ + Decompressor::kPieceBytes);
}

TEST_F(CompressedRun, ColumnsAreDecodedOnceSideBySide) {
  cut({{{0, 0}, {kRows, 1000}}, {{0, 1000}, {kRows, 2000}}, {{0, 3000}, {kRows, 1001}}});
  const auto report = convert();
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_TRUE(disk_.text("/target/out") == whole_);
  EXPECT_LE(report->read_bytes, stored_ + 3 * Decompressor::kPieceBytes);
}

TEST_F(CompressedRun, UnitsSmallerThanABufferAreFoundAgain) {
  std::vector<Box> boxes;
  for (std::uint64_t r = 0; r < kRows; r += 500) boxes.push_back({{r, 0}, {500, kColumns}});
  cut(boxes);
  const auto report = convert();
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_TRUE(disk_.text("/target/out") == whole_);
  EXPECT_LE(report->read_bytes, 2 * stored_);
}

TEST_F(CompressedRun, AFlippedByteNamesFileAndOffset) {
  cut({{{0, 0}, {kRows, kColumns}}});
  std::string bad = disk_.text("/source/a");
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 0x40);
  disk_.put("/source/a", bad);
  const auto report = convert();
  ASSERT_FALSE(report.has_value());
  EXPECT_TRUE(report.error().code == Errc::corrupt || report.error().code == Errc::checksum) << report.error().message;
  EXPECT_EQ(report.error().file, "/source/a");
  EXPECT_TRUE(report.error().offset.has_value());
}

}  // namespace
}  // namespace ckpt::test
