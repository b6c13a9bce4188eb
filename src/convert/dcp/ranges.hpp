#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/io.hpp"
#include "format/box.hpp"
#include "format/result.hpp"

namespace ckpt::dcp {

/// A range of one of the checkpoint's data files.
struct Range {
  std::uint32_t file = 0;  ///< index into the paths
  Extent bytes{};
};

/// Reads many small ranges of many files through the queue of its own Io, and holds what it read until `drop`. Ranges
/// that touch or lie close to each other in a file become one request. One thread at a time.
class RangeReader {
 public:
  /// Ranges closer than this are read as one, so a small item is read whole.
  static constexpr std::uint64_t kGapBytes = 32 << 10;
  /// No request grows past this by merging.
  static constexpr std::uint64_t kRequestBytes = 1 << 20;
  /// Data files kept open at once; a read that touches more closes and opens on the way.
  static constexpr std::size_t kOpenFiles = 256;

  /// paths  as they can be opened, in the order of Range::file
  RangeReader(std::unique_ptr<Io> io, std::vector<std::string> paths);

  /// Reads the ranges, in any order; the caller bounds their sum. `corrupt` with file and offset where a file ends
  /// before a range does; otherwise the errors of Io.
  Result<> read(std::vector<Range> wanted);
  /// The bytes of a range, if they were read; empty otherwise. Valid until the next read or drop.
  std::span<const std::byte> held(std::uint32_t file, Extent bytes) const;
  void drop() { held_.clear(); }

  const std::string& path(std::uint32_t file) const { return paths_[file]; }

 private:
  struct Held {
    std::uint32_t file = 0;
    std::uint64_t begin = 0;
    std::vector<std::byte> data{};
  };
  Result<> fill(std::span<Held> pieces);
  Result<> check(const Completion& done, const Held& piece) const;
  Result<FileHandle> handle(std::uint32_t file);
  Result<> close_all();

  std::vector<std::vector<std::byte>> abandoned_;  // buffers in flight when reaping failed; outlive io_
  std::unique_ptr<Io> io_;
  std::vector<std::string> paths_;
  std::vector<FileHandle> handles_;  // one a path
  std::vector<std::uint32_t> open_;  // files whose handle is open
  std::vector<Held> held_;           // sorted by file, begin, size
};

}  // namespace ckpt::dcp
