#include "engine/run/checks.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/io/io.hpp"
#include "format/hash.hpp"
#include "format/model/cast.hpp"

namespace ckpt {
namespace {

/// One entry of which a fetch holds bytes.
struct Touched {
  CrcJoiner::Entry entry;
  std::uint32_t segment = 0;
  Extent bytes{};  // of the file, in the buffer, from the first that is needed to the last
};

/// The ranges that a fetch needs of each entry. Bytes around them that were read anyway are used if they complete the
/// entry: no other process may need that padding.
std::vector<Touched> touched_entries(const Fetch& fetch, std::span<const Segment> segments) {
  std::vector<Touched> touched;
  for (const Fetch::Use& use : fetch.uses) {
    if (!use.copy.crc) continue;
    const Crc& crc = *use.copy.crc;
    touched.push_back({.entry = entry_of(use.copy),
                       .segment = use.segment,
                       .bytes = {std::max(crc.begin, use.copy.source_offset),
                                 std::min(crc.end, use.copy.source_offset + source_span(use.copy))}});
  }
  const auto key = [](const Touched& t) {
    return std::tuple(t.segment, t.entry.stream, t.entry.crc.begin, t.entry.crc.end);
  };
  std::ranges::stable_sort(touched, {}, key);
  std::vector<Touched> out;
  for (const Touched& next : touched) {
    if (out.empty() || key(out.back()) != key(next)) {
      out.push_back(next);
    } else {
      Extent& bytes = out.back().bytes;
      bytes = {std::min(bytes.begin, next.bytes.begin), std::max(bytes.end, next.bytes.end)};
    }
  }
  for (Touched& entry : out) {
    const Segment& segment = segments[entry.segment];
    if (entry.entry.crc.begin >= segment.begin) entry.bytes.begin = entry.entry.crc.begin;
    if (entry.entry.crc.end <= segment.end) entry.bytes.end = entry.entry.crc.end;
  }
  return out;
}

constexpr std::uint64_t kCheckBlock = 1024;  // elements
using CheckBlock = std::array<std::byte, kCheckBlock * 8>;

/// Copies elements of `unit` bytes at steps of `stride` to adjacent places.
void gather(const std::byte* from, std::uint64_t stride, std::uint64_t unit, std::uint64_t count, CheckBlock& into) {
  if (stride == unit) {
    std::memcpy(into.data(), from, count * unit);
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) std::memcpy(into.data() + i * unit, from + i * stride, unit);
}

bool is_nan(Dtype dtype, const std::byte* at) {
  const auto bits = [&]<class T>(T) {
    T value{};
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case Dtype::f16:
      return (bits(std::uint16_t{}) & 0x7fffu) > 0x7c00u;
    case Dtype::bf16:
      return (bits(std::uint16_t{}) & 0x7fffu) > 0x7f80u;
    case Dtype::f32:
      return (bits(std::uint32_t{}) & 0x7fffffffu) > 0x7f800000u;
    case Dtype::f64:
      return (bits(std::uint64_t{}) & 0x7fffffffffffffffu) > 0x7ff0000000000000u;
    default:
      return false;
  }
}

/// One innermost run of a copy.
class RunComparison {
 public:
  RunComparison(const Copy& copy, const std::byte* source, std::uint64_t source_begin, const std::byte* leaf, Dtype via)
      : copy_(copy), source_(source), source_begin_(source_begin), leaf_(leaf), via_(via) {}

  void compare(const Copy::Dim& dim, const std::byte* from, const std::byte* to) {
    const std::uint64_t held_unit = unit_bytes(copy_.held);
    const bool plain = copy_.from == copy_.to && copy_.to == copy_.held && !copy_.big_endian;
    if (plain && dim.source_stride == copy_.unit && dim.target_stride == held_unit &&
        std::memcmp(from, to, dim.count * copy_.unit) == 0) {
      return;
    }
    const std::uint64_t unit = unit_bytes(copy_.to);
    for (std::uint64_t at = 0; at < dim.count; at += kCheckBlock) {
      const std::uint64_t count = std::min(kCheckBlock, dim.count - at);
      gather(from + at * dim.source_stride, dim.source_stride, copy_.unit, count, raw_);
      if (copy_.big_endian) {
        const unsigned halves = copy_.from == Dtype::c64 ? 2 : 1;
        swap_bytes(raw_.data(), count * halves, copy_.unit / halves);
      }
      gather(to + at * dim.target_stride, dim.target_stride, held_unit, count, held_);
      const std::byte* wanted = raw_.data();
      if (copy_.from != copy_.to) {
        cast(copy_.from, raw_.data(), copy_.to, cooked_.data(), count, counts_);
        wanted = cooked_.data();
      }
      const std::byte* found = held_.data();
      if (copy_.held != via_) {
        cast(copy_.held, found, via_, middle_.data(), count, counts_);
        found = middle_.data();
      }
      if (via_ != copy_.to) {
        cast(via_, found, copy_.to, rounded_.data(), count, counts_);
        found = rounded_.data();
      }
      if (std::memcmp(wanted, found, count * unit) == 0) continue;
      const bool casts = copy_.held != copy_.to || via_ != copy_.to || copy_.from != copy_.to;
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::byte* a = wanted + i * unit;
        const std::byte* b = found + i * unit;
        if (std::memcmp(a, b, unit) == 0 || (casts && is_nan(copy_.to, a) && is_nan(copy_.to, b))) continue;
        if (out_.elements++ != 0) continue;
        out_.source_offset = source_begin_ + static_cast<std::uint64_t>(from - source_) + (at + i) * dim.source_stride;
        out_.target_offset = static_cast<std::uint64_t>(to - leaf_) + (at + i) * dim.target_stride;
      }
    }
  }
  const Mismatch& outcome() const { return out_; }

 private:
  const Copy& copy_;
  const std::byte* source_;
  std::uint64_t source_begin_;
  const std::byte* leaf_;
  Dtype via_;
  Mismatch out_{};
  CastCounts counts_{};
  CheckBlock raw_;
  CheckBlock cooked_;
  CheckBlock held_;
  CheckBlock middle_;
  CheckBlock rounded_;
};

}  // namespace

std::string path_of(const Map& map, std::uint32_t file, const std::string& root) {
  const std::string& own_root = map.files[file].root;
  const std::string& path = map.files[file].path;
  if (!own_root.empty()) return path.empty() ? own_root : join_path(own_root, path);
  if (path.empty()) return root;
  return path.front() == '/' ? path : join_path(root, path);
}

CrcJoiner::Entry entry_of(const Copy& copy) {
  CrcJoiner::Entry out{.file = copy.source_file, .crc = *copy.crc, .tensor = copy.tensor};
  if (copy.compressed) out.stream = copy.compressed->stored.begin;
  return out;
}

TargetFile missing_ranges(const CrcJoiner& joiner, std::uint64_t most_missing) {
  TargetFile out;
  for (const CrcJoiner::Open& open : joiner.open()) {
    if (open.entry.stream || open.missing_bytes() > most_missing) continue;
    for (const Extent part : open.missing) {
      out.placements.push_back({.offset = out.bytes,
                                .bytes = part.size(),
                                .from = Placement::From::raw,
                                .raw_file = open.entry.file,
                                .raw_offset = part.begin,
                                .raw_crc = open.entry.crc});
      out.bytes += part.size();
    }
  }
  return out;
}

Error as_error(const Discrepancy& discrepancy, const Map& map, const std::string& source_root) {
  const bool checksum = discrepancy.kind == Discrepancy::Kind::checksum;
  const std::string path = path_of(map, discrepancy.file, source_root);
  return {.code = checksum ? Errc::checksum : Errc::corrupt,
          .message = path + (checksum ? ": stored and computed CRC-32 differ"
                                      : ": differs from another copy of the same values"),
          .file = path,
          .offset = discrepancy.offset,
          .tensor = discrepancy.tensor == kNoTensor ? std::string() : map.tensors[discrepancy.tensor].name};
}

Result<> check_crcs(const Fetch& fetch, std::span<const Segment> segments, const std::byte* buffer, CrcJoiner& joiner,
                    std::uint64_t& checked, const std::function<Result<>(const Discrepancy&)>& found) {
  for (const Touched& touched : touched_entries(fetch, segments)) {
    const Segment& segment = segments[touched.segment];
    for (const Extent part : joiner.take(touched.entry, touched.bytes)) {
      const std::byte* at = buffer + segment.buffer_offset + (part.begin - segment.begin);
      const std::uint32_t value = crc32(0, {at, static_cast<std::size_t>(part.size())});
      const auto verdict = joiner.add(touched.entry, part, value);
      if (!verdict) continue;
      ++checked;
      if (verdict->right) continue;
      CKPT_CHECK(found({.kind = Discrepancy::Kind::checksum,
                        .file = touched.entry.file,
                        .offset = touched.entry.crc.begin,
                        .tensor = touched.entry.tensor,
                        .stored = touched.entry.crc.value,
                        .computed = verdict->computed}));
    }
  }
  return {};
}

Mismatch compare(const Copy& copy, const std::byte* source, std::uint64_t source_begin, const std::byte* leaf,
                 std::optional<Dtype> via) {
  RunComparison runs(copy, source, source_begin, leaf, via.value_or(copy.to));
  const std::byte* from = source + (copy.source_offset - source_begin);
  const std::byte* to = leaf + copy.target_offset;
  if (copy.dims.empty()) {
    runs.compare({1, copy.unit, unit_bytes(copy.held)}, from, to);
    return runs.outcome();
  }
  for_each_run(copy, [&](std::uint64_t source_step, std::uint64_t target_step) {
    runs.compare(copy.dims.back(), from + source_step, to + target_step);
  });
  return runs.outcome();
}

}  // namespace ckpt
