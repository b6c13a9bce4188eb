#include "engine/run/fetch.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

#include "engine/io/io.hpp"
#include "format/checked.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kDenseGap = 64 * 1024;  // reading over a gap this small is cheaper than another request
constexpr std::uint64_t kSparseGap = kAlignment;
constexpr std::uint64_t kSparseRatio = 8;  // a span this many times its needed bytes is not read whole

struct Piece {
  Copy copy;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool sparse = false;
};

std::uint64_t needed_bytes(const Copy& copy) {
  std::uint64_t count = 1;
  for (const Copy::Dim& dim : copy.dims) {
    if (dim.source_stride != 0) count *= dim.count;
  }
  return count * copy.unit;
}

/// What is read for a copy: itself, or its rows as a whole where other leaves need them, too.
Extent read_extent(const Copy& copy) {
  if (copy.row_bytes == 0) return {copy.source_offset, copy.source_offset + source_span(copy)};
  std::uint64_t last = 0;  // row
  for (const Copy::Dim& dim : copy.dims)
    if (dim.source_stride >= copy.row_bytes) last += (dim.count - 1) * dim.source_stride;
  const std::uint64_t begin = copy.source_offset - copy.row_before;
  return {begin, begin + last + copy.row_bytes};
}

/// The dimension with the widest step in the source: cutting there gives the shortest spans.
std::size_t widest_dim(const Copy& copy) {
  std::size_t widest = 0;
  for (std::size_t d = 1; d < copy.dims.size(); ++d) {
    const Copy::Dim& dim = copy.dims[d];
    if (dim.source_stride > copy.dims[widest].source_stride) widest = d;
  }
  return widest;
}

/// Cuts `copy` along dimension d into parts of at most `steps`: rows where siblings that begin in others cut them.
void cut(const Copy& copy, std::size_t d, std::uint64_t steps, std::vector<Copy>& out) {
  const Copy::Dim dim = copy.dims[d];
  for (std::uint64_t at = 0; at < dim.count;) {
    Copy part = copy;
    part.source_offset += at * dim.source_stride;
    part.target_offset += at * dim.target_stride;
    part.row_first += copy.row_bytes != 0 ? at : 0;
    part.dims[d].count = std::min(steps - part.row_first % steps, dim.count - at);
    at += part.dims[d].count;
    if (part.dims[d].count == 1) part.dims.erase(part.dims.begin() + static_cast<std::ptrdiff_t>(d));
    out.push_back(std::move(part));
  }
}

/// Whether rows are cut, for siblings that begin in others, between the first and the last of a copy.
bool crosses_cut(const Copy& copy, std::uint64_t limit) {
  if (copy.row_bytes == 0 || copy.dims.empty()) return false;
  const Copy::Dim& rows = copy.dims[widest_dim(copy)];
  if (rows.source_stride < copy.row_bytes) return false;  // there is one row
  const std::uint64_t steps = std::max<std::uint64_t>(1, limit / rows.source_stride);
  return copy.row_first % steps + rows.count > steps;
}

/// Cuts until every part fits a buffer, and until none reads much more than it, and others, need.
void split(Copy copy, std::uint64_t limit, std::vector<Piece>& out) {
  std::vector<Copy> stack;
  stack.push_back(std::move(copy));
  bool sparse = false;
  while (!stack.empty()) {
    Copy top = std::move(stack.back());
    stack.pop_back();
    if (top.row_bytes > limit) {  // of such rows others read parts of their own
      top.row_bytes = 0;
      top.row_first = 0;
    }
    const Extent read = read_extent(top);
    const bool wasteful = !top.compressed && top.row_bytes == 0 && read.size() > kDenseGap &&
                          read.size() / kSparseRatio > needed_bytes(top);
    const bool crosses = crosses_cut(top, limit);
    if (read.size() <= limit && !wasteful && !crosses) {
      out.push_back({.copy = std::move(top), .begin = read.begin, .end = read.end, .sparse = sparse});
      continue;
    }
    sparse = sparse || wasteful;
    const std::size_t d = widest_dim(top);
    const std::uint64_t stride = std::max<std::uint64_t>(top.dims[d].source_stride, 1);
    const std::uint64_t steps = wasteful ? 1 : std::max<std::uint64_t>(1, limit / stride);
    const std::uint64_t most = top.dims[d].count > 1 ? top.dims[d].count - 1 : 1;
    std::vector<Copy> parts;
    cut(top, d, crosses ? steps : std::min(steps, most), parts);
    std::move(parts.rbegin(), parts.rend(), std::back_inserter(stack));
  }
}

}  // namespace

std::uint64_t source_span(const Copy& copy) {
  std::uint64_t last = 0;
  for (const Copy::Dim& dim : copy.dims) last += (dim.count - 1) * dim.source_stride;
  return last + copy.unit;
}

std::uint64_t target_volume(const Copy& copy) {
  std::uint64_t count = 1;
  for (const Copy::Dim& dim : copy.dims) count *= dim.count;
  return count * unit_bytes(copy.to);
}

std::uint64_t compared_bytes(const Copy& check) {
  std::uint64_t count = 1;
  for (const Copy::Dim& dim : check.dims) count *= dim.count;
  return count * unit_bytes(check.held);
}

std::vector<Fetch> group_fetches(std::vector<Copy> copies, std::size_t buffer_bytes, bool apart) {
  const std::uint64_t limit = buffer_bytes - 2 * kAlignment;
  std::vector<Piece> pieces;
  pieces.reserve(copies.size());
  for (Copy& copy : copies) split(std::move(copy), limit, pieces);
  copies = {};  // a leaf of tiny tensors has a million of them
  std::vector<std::uint32_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const auto key = [&](std::uint32_t at) {
      const Piece& p = pieces[at];
      const std::uint64_t stored = p.copy.compressed ? p.copy.compressed->stored.begin : 0;
      return std::tuple(p.copy.source_file, p.copy.compressed.has_value(), stored, p.sparse, p.copy.row_bytes == 0,
                        p.begin, at);
    };
    return key(a) < key(b);
  });

  std::vector<Fetch> fetches;
  bool closed = true;  // nothing may join the last fetch
  bool of_rows = false;
  for (const std::uint32_t at : order) {
    Piece& piece = pieces[at];
    const std::optional<Compressed>& compressed = piece.copy.compressed;
    if (compressed) {
      // A small unit is decoded completely, for other leaves; larger ones continue where the last read ended.
      const bool whole = compressed->bytes <= limit;
      Segment* last = fetches.empty() ? nullptr : &fetches.back().segments.back();
      const std::uint64_t end = whole ? compressed->bytes : piece.end;
      if (last != nullptr && last->file == piece.copy.source_file && last->compressed == compressed &&
          end - last->begin <= limit) {
        last->end = last->needed_end = std::max(last->end, end);
        fetches.back().buffer_bytes = round_up(last->end - last->begin, kAlignment);
        fetches.back().uses.push_back({std::move(piece.copy), 0});
        continue;
      }
      const std::uint64_t begin = whole ? 0 : piece.begin;
      Fetch& fetch = fetches.emplace_back();
      fetch.segments.push_back({.file = piece.copy.source_file,
                                .sparse = true,
                                .begin = begin,
                                .end = end,
                                .needed_end = end,
                                .compressed = compressed});
      fetch.buffer_bytes = round_up(end - begin, kAlignment);
      fetch.uses.push_back({std::move(piece.copy), 0});
      closed = true;
      continue;
    }
    // Siblings have the same fetches of whole rows: what is theirs alone does not come into these.
    closed = closed || of_rows != (piece.copy.row_bytes != 0);
    of_rows = piece.copy.row_bytes != 0;
    const bool alone = apart && piece.end - piece.begin >= kDenseGap;
    const std::uint64_t align = piece.sparse ? 1 : kAlignment;
    const std::uint64_t gap = piece.sparse ? kSparseGap : kDenseGap;
    Segment* last = closed || alone ? nullptr : &fetches.back().segments.back();
    if (last != nullptr && last->file == piece.copy.source_file && last->sparse == piece.sparse &&
        piece.begin <= last->needed_end + gap) {
      const std::uint64_t needed_end = std::max(last->needed_end, piece.end);
      const std::uint64_t end = round_up(needed_end, align);
      const std::uint64_t grown = round_up(last->buffer_offset + (end - last->begin), kAlignment);
      if (grown <= buffer_bytes) {
        last->needed_end = needed_end;
        last->end = end;
        fetches.back().buffer_bytes = grown;
        fetches.back().uses.push_back(
            {std::move(piece.copy), static_cast<std::uint32_t>(fetches.back().segments.size() - 1)});
        continue;
      }
    }
    Segment segment{.file = piece.copy.source_file,
                    .sparse = piece.sparse,
                    .begin = round_down(piece.begin, align),
                    .end = round_up(piece.end, align),
                    .needed_end = piece.end};
    const std::uint64_t bytes = round_up(segment.end - segment.begin, kAlignment);
    if (closed || alone || fetches.back().buffer_bytes + bytes > buffer_bytes) fetches.emplace_back();
    closed = alone;
    Fetch& fetch = fetches.back();
    segment.buffer_offset = fetch.buffer_bytes;
    fetch.buffer_bytes += bytes;
    fetch.segments.push_back(segment);
    fetch.uses.push_back({std::move(piece.copy), static_cast<std::uint32_t>(fetch.segments.size() - 1)});
  }
  for (Fetch& fetch : fetches) fetch.uses.shrink_to_fit();
  return fetches;
}

namespace {

/// `count` elements from `source` (steps of source_stride) to `target` (steps of target_stride).
void carry_run(const Copy& copy, const Copy::Dim& dim, const std::byte* source, std::byte* target, CastCounts& counts) {
  const std::uint64_t to_unit = unit_bytes(copy.to);
  const bool plain = copy.from == copy.through && copy.through == copy.to && !copy.big_endian;
  const bool dense = dim.source_stride == copy.unit && dim.target_stride == to_unit;
  if (plain && dense) {
    std::memcpy(target, source, dim.count * copy.unit);
    return;
  }
  if (plain) {
    const auto step = [&]<std::size_t kBytes>() {
      for (std::uint64_t i = 0; i < dim.count; ++i) {
        std::memcpy(target + i * dim.target_stride, source + i * dim.source_stride, kBytes);
      }
    };
    switch (copy.unit) {
      case 1:
        return step.operator()<1>();
      case 2:
        return step.operator()<2>();
      case 4:
        return step.operator()<4>();
      default:
        return step.operator()<8>();
    }
  }
  if (dense && !copy.big_endian && (copy.from == copy.through || copy.through == copy.to)) {
    cast(copy.from, source, copy.to, target, dim.count, counts);
    return;
  }
  // Gather a block, swap it, cast it, scatter it.
  constexpr std::uint64_t kBlock = 1024;
  std::byte raw[kBlock * 8];
  std::byte middle[kBlock * 8];
  std::byte cooked[kBlock * 8];
  for (std::uint64_t at = 0; at < dim.count; at += kBlock) {
    const std::uint64_t count = std::min(kBlock, dim.count - at);
    for (std::uint64_t i = 0; i < count; ++i) {
      std::memcpy(raw + i * copy.unit, source + (at + i) * dim.source_stride, copy.unit);
    }
    if (copy.big_endian) {
      const unsigned halves = copy.from == Dtype::c64 ? 2 : 1;  // a complex number is two floats
      swap_bytes(raw, count * halves, copy.unit / halves);
    }
    cast(copy.from, raw, copy.through, middle, count, counts);
    cast(copy.through, middle, copy.to, cooked, count, counts);
    for (std::uint64_t i = 0; i < count; ++i) {
      std::memcpy(target + (at + i) * dim.target_stride, cooked + i * to_unit, to_unit);
    }
  }
}

}  // namespace

bool is_plain_run(const Copy& copy) {
  const bool dense =
      copy.dims.size() <= 1 &&
      (copy.dims.empty() || (copy.dims[0].source_stride == copy.unit && copy.dims[0].target_stride == copy.unit));
  return dense && copy.from == copy.through && copy.through == copy.to && !copy.big_endian;
}

void carry_out(const Copy& copy, const std::byte* source, std::uint64_t source_begin, std::byte* leaf,
               CastCounts& counts) {
  const std::byte* from = source + (copy.source_offset - source_begin);
  std::byte* to = leaf + copy.target_offset;
  if (copy.dims.empty()) return carry_run(copy, {1, copy.unit, unit_bytes(copy.to)}, from, to, counts);

  for_each_run(copy, [&](std::uint64_t source_step, std::uint64_t target_step) {
    carry_run(copy, copy.dims.back(), from + source_step, to + target_step, counts);
  });
}

}  // namespace ckpt
