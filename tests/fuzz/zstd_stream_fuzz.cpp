#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "format/files/zstd_stream.hpp"
#include "format/hash.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}

constexpr std::uint64_t kMost = std::uint64_t{4} << 20;  // decoded bytes that are looked at

struct Outcome {
  bool failed = false;
  std::uint64_t bytes = 0;
  ckpt::Hash128 hash{};
};

/// Decodes with so many bytes of input and of room at a time.
Outcome decode(std::span<const std::byte> in, std::size_t in_step, std::size_t out_step) {
  static std::array<std::byte, 65536> room;
  auto stream = ckpt::ZstdStream::make();
  require(stream.has_value());
  Outcome out;
  ckpt::Hasher hasher;
  std::size_t at = 0;
  while (out.bytes < kMost) {
    const auto piece = in.subspan(at, std::min(in_step, in.size() - at));
    const auto step = stream->decode(piece, std::span(room).first(out_step));
    if (!step) {
      out.failed = true;
      break;
    }
    require(step->consumed <= piece.size() && step->produced <= out_step);
    require(stream->memory_bytes() <= ckpt::kZstdStreamBytes);
    const std::uint64_t kept = std::min<std::uint64_t>(step->produced, kMost - out.bytes);
    hasher.update(std::span<const std::byte>(room).first(static_cast<std::size_t>(kept)));
    out.bytes += kept;
    at += step->consumed;
    if (step->consumed == 0 && step->produced == 0) break;  // it wants more input than there is
  }
  out.hash = hasher.digest();
  return out;
}
}  // namespace

// What a stream decodes to does not depend on the pieces in which it is read, and takes no more memory than is said.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> in(reinterpret_cast<const std::byte*>(data), size);
  const Outcome whole = decode(in, std::max<std::size_t>(size, 1), 65536);
  if (size > 4096) return 0;
  const Outcome pieces = decode(in, 7, 1021);
  if (whole.bytes == kMost || pieces.bytes == kMost) return 0;  // one may have stopped before what is wrong
  // libzstd checks a frame that it gets at once against the size that its header gives, also where its last block is
  // empty; otherwise it does not.
  if (whole.failed || pieces.failed) return 0;
  require(whole.bytes == pieces.bytes && whole.hash == pieces.hash);
  return 0;
}
