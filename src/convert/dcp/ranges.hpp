#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/io.hpp"
#include "format/model/box.hpp"
#include "format/result.hpp"

namespace ckpt::dcp {

/// A range of one of the checkpoint's data files.
struct Range {
  std::uint32_t file = 0;  ///< index into the paths
  Extent bytes{};
};

/// Ranges of files that were read, or decoded, and are held until `drop`.
class HeldRanges {
 public:
  /// paths  of the files, for messages too
  explicit HeldRanges(std::vector<std::string> paths) : paths_(std::move(paths)) {}

  /// The bytes of a range, if they were read; empty otherwise. Valid until something is kept or dropped.
  std::span<const std::byte> held(std::uint32_t file, Extent bytes) const;
  void keep(std::uint32_t file, std::uint64_t begin, std::vector<std::byte> data);
  void drop() { held_.clear(); }

  const std::string& path(std::uint32_t file) const { return paths_[file]; }
  /// The same files, and nothing held.
  HeldRanges empty() const { return HeldRanges(paths_); }

 protected:
  struct HeldRange {
    std::uint32_t file = 0;
    std::uint64_t begin = 0;
    std::vector<std::byte> data{};
  };
  void sort();

  std::vector<std::string> paths_;
  std::vector<HeldRange> held_;  // sorted by file, begin, size
};

/// Reads many small ranges of many files through the queue of its own Io. Adjacent and close ranges in a file become
/// one request. One thread at a time.
class RangeReader : public HeldRanges {
 public:
  /// Ranges closer than this are read together, so a small item is read completely.
  static constexpr std::uint64_t kGapBytes = 32 << 10;
  /// No request grows past this by merging.
  static constexpr std::uint64_t kRequestBytes = 1 << 20;
  /// Data files kept open at once; a read that touches more closes and opens on the way.
  static constexpr std::size_t kOpenFiles = 256;

  /// paths  as they can be opened, in the order of Range::file
  RangeReader(std::unique_ptr<Io> io, std::vector<std::string> paths);

  /// Reads the ranges, in any order; the caller bounds their total. `corrupt` with file and offset if a file ends
  /// before a range does; otherwise the errors of Io.
  Result<> read(std::vector<Range> wanted);
  /// For reads outside of the queue: the file's handle, valid until the next call.
  Result<FileHandle> handle(std::uint32_t file);
  Io& io() { return *io_; }

 private:
  Result<> fill(std::span<HeldRange> pieces);
  Result<> check(const Completion& done, const HeldRange& piece) const;
  Result<> close_all();

  std::unique_ptr<Io> io_;
  std::vector<FileHandle> handles_;  // one per path
  std::vector<std::uint32_t> open_;  // files whose handle is open
};

}  // namespace ckpt::dcp
