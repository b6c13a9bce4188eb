#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/run/plan.hpp"
#include "format/model/cast.hpp"
#include "format/result.hpp"

namespace ckpt {

/// One read: bytes [begin, end) of a source file into a buffer at `buffer_offset`. A dense segment is aligned for
/// direct I/O; a sparse one (scattered small runs, whose neighbours the page cache serves later) is not. Of a
/// compressed one begin and end count decoded bytes.
struct Segment {
  std::uint32_t file = 0;
  bool sparse = false;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t needed_end = 0;  ///< the read may end early (at the end of the file), but not before this
  std::size_t buffer_offset = 0;
  std::optional<Compressed> compressed{};
};

/// Reads that share one buffer, and the copies that they serve. A compressed segment has a separate fetch.
struct Fetch {
  std::vector<Segment> segments{};
  struct Use {
    Copy copy;
    std::uint32_t segment = 0;
  };
  std::vector<Use> uses{};
  std::size_t buffer_bytes = 0;
};

/// Groups a leaf's copies into fetches of at most `buffer_bytes` (a multiple of kAlignment, at least four times it):
/// longer copies are cut, neighbours in one file are read together if the gap is small. With `apart`, copies that are
/// long enough are fetched alone, so that other leaves can find them.
std::vector<Fetch> group_fetches(std::vector<Copy> copies, std::size_t buffer_bytes, bool apart);

/// Bytes of the source file from the first to one past the last that a copy touches.
std::uint64_t source_span(const Copy& copy);
/// Bytes that a copy writes.
std::uint64_t target_volume(const Copy& copy);

/// Bytes of the leaf that a check compares.
std::uint64_t compared_bytes(const Copy& check);

/// Whether a copy is one run of bytes with the same layout in source and target.
bool is_plain_run(const Copy& copy);

/// Carries a copy out: `source` holds the file's bytes from `source_begin` on, `leaf` is the target.
void carry_out(const Copy& copy, const std::byte* source, std::uint64_t source_begin, std::byte* leaf,
               CastCounts& counts);

/// Calls `visit(source_step, target_step)` for every innermost run of a copy that has dimensions, with the bytes from
/// the copy's first element to the run's.
template <class Visit>
void for_each_run(const Copy& copy, const Visit& visit) {
  const std::size_t outer = copy.dims.size() - 1;
  std::vector<std::uint64_t> index(outer, 0);  // an odometer over all dimensions but the innermost
  std::uint64_t source_step = 0;
  std::uint64_t target_step = 0;
  for (;;) {
    visit(source_step, target_step);
    std::size_t d = outer;
    for (;;) {
      if (d == 0) return;
      --d;
      const Copy::Dim& dim = copy.dims[d];
      source_step += dim.source_stride;
      target_step += dim.target_stride;
      if (++index[d] < dim.count) break;
      source_step -= dim.count * dim.source_stride;
      target_step -= dim.count * dim.target_stride;
      index[d] = 0;
    }
  }
}

}  // namespace ckpt
