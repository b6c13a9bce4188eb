#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "format/result.hpp"

struct ZSTD_DCtx_s;

namespace ckpt {

/// The largest zstd window that is decoded, as a power of two: the 8 MiB that every decoder should take (RFC 8878,
/// section 3.1.1.1.2). Frames of levels up to 19 need no more; `--ultra` and `--long` may.
constexpr int kZstdWindowLog = 23;
/// Memory of one stream while it decodes, in bytes: its window and libzstd's own blocks.
constexpr std::uint64_t kZstdStreamBytes = std::uint64_t{9} << 20;

/// Decodes zstd frames that follow each other, piece by piece.
class ZstdStream {
 public:
  /// memory: libzstd got none
  static Result<ZstdStream> make();

  struct Step {
    std::size_t consumed = 0;  ///< of `in`
    std::size_t produced = 0;  ///< of `out`
    bool at_frame_end = false;
  };
  /// Decodes some of `in` into `out`; with room in `out` and no progress it needs more input.
  /// errors  unsupported: a window over kZstdWindowLog, a dictionary; checksum: a frame's own differs; corrupt
  Result<Step> decode(std::span<const std::byte> in, std::span<std::byte> out);
  /// From here on `in` is another stream's.
  void restart();
  /// Its memory now, in bytes.
  std::uint64_t memory_bytes() const;

 private:
  struct Free {
    void operator()(ZSTD_DCtx_s* context) const noexcept;
  };
  explicit ZstdStream(ZSTD_DCtx_s* context) : context_(context) {}
  std::unique_ptr<ZSTD_DCtx_s, Free> context_;
};

}  // namespace ckpt
