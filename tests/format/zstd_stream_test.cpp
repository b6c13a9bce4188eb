#include "format/files/zstd_stream.hpp"

#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <string>
#include <vector>

namespace ckpt {
namespace {

std::string packed(const std::string& bytes, int window_log = 20, bool checksum = true) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, checksum ? 1 : 0);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  ZSTD_inBuffer from{bytes.data(), bytes.size() / 2, 0};
  EXPECT_FALSE(ZSTD_isError(ZSTD_compressStream2(context, &to, &from, ZSTD_e_continue)));  // the size is not yet known
  from.size = bytes.size();
  EXPECT_EQ(ZSTD_compressStream2(context, &to, &from, ZSTD_e_end), 0u);
  ZSTD_freeCCtx(context);
  out.resize(to.pos);
  return out;
}

/// Decodes all of `stored`, so many bytes of either side at a time; an error's code where there is one.
Result<std::string> decoded(const std::string& stored, std::size_t step) {
  auto stream = ZstdStream::make();
  EXPECT_TRUE(stream.has_value());
  std::string out;
  std::vector<std::byte> room(step);
  std::size_t at = 0;
  for (;;) {
    const std::size_t count = std::min(step, stored.size() - at);
    auto done = stream->decode(std::as_bytes(std::span(stored)).subspan(at, count), room);
    if (!done) return tl::unexpected<Error>(std::move(done).error());
    at += done->consumed;
    out.append(reinterpret_cast<const char*>(room.data()), done->produced);
    if (at == stored.size() && done->produced == 0) return out;
  }
}

TEST(ZstdStream, FramesThatFollowEachOtherAreOneStreamInAnyPieces) {
  std::string first(300'000, 'a');
  for (std::size_t i = 0; i < first.size(); ++i) first[i] = static_cast<char>(i * i >> 3);
  const std::string stored = packed(first) + packed("and more");
  for (const std::size_t step : {1u, 7u, 4096u, 1u << 20}) {
    const auto out = decoded(stored, step);
    ASSERT_TRUE(out.has_value()) << out.error().message;
    EXPECT_TRUE(*out == first + "and more") << step;
  }
}

TEST(ZstdStream, AWindowThatWouldTakeMoreMemoryIsUnsupported) {
  const std::string bytes(1000, 'x');
  EXPECT_TRUE(decoded(packed(bytes, kZstdWindowLog), 4096).has_value());
  const auto wide = decoded(packed(bytes, kZstdWindowLog + 1), 4096);
  ASSERT_FALSE(wide.has_value());
  EXPECT_EQ(wide.error().code, Errc::unsupported) << wide.error().message;
}

TEST(ZstdStream, WhatItTakesStaysWithinItsBound) {
  std::string bytes(std::size_t{20} << 20, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 24);
  const std::string stored = packed(bytes, kZstdWindowLog);
  auto stream = ZstdStream::make();
  std::vector<std::byte> room(1 << 20);
  ASSERT_TRUE(stream->decode(std::as_bytes(std::span(stored)), room).has_value());
  EXPECT_LE(stream->memory_bytes(), kZstdStreamBytes);
}

TEST(ZstdStream, AFlippedByteIsNoticedByTheFramesChecksum) {
  const std::string whole(50'000, 'q');
  const std::string stored = packed(whole);
  for (std::size_t at = 0; at < stored.size(); ++at) {
    std::string bad = stored;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    const auto out = decoded(bad, 1 << 16);
    EXPECT_TRUE(!out || *out == whole || out->size() < whole.size()) << at;
  }
  std::string bad = stored;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  const auto out = decoded(bad, 1 << 16);
  ASSERT_FALSE(out.has_value());
  EXPECT_EQ(out.error().code, Errc::checksum);
}

TEST(ZstdStream, ARestartForgetsAHalfReadFrame) {
  const std::string stored = packed(std::string(100'000, 'z'));
  auto stream = ZstdStream::make();
  std::vector<std::byte> room(200'000);
  ASSERT_TRUE(stream->decode(std::as_bytes(std::span(stored)).first(stored.size() / 2), room).has_value());
  stream->restart();
  const auto again = stream->decode(std::as_bytes(std::span(stored)), room);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(again->produced, 100'000u);
  EXPECT_TRUE(again->at_frame_end);
}

}  // namespace
}  // namespace ckpt
