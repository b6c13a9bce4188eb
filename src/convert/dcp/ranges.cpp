#include "convert/dcp/ranges.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "engine/io/leave_to_kernel.hpp"

namespace ckpt::dcp {

RangeReader::RangeReader(std::unique_ptr<Io> io, std::vector<std::string> paths)
    : HeldRanges(std::move(paths)), io_(std::move(io)), handles_(paths_.size()) {}

Result<> RangeReader::read(std::vector<Range> wanted) {
  std::sort(wanted.begin(), wanted.end(), [](const Range& a, const Range& b) {
    return std::tie(a.file, a.bytes.begin, a.bytes.end) < std::tie(b.file, b.bytes.begin, b.bytes.end);
  });
  std::vector<Range> merged;
  for (const Range& range : wanted) {
    if (range.bytes.size() == 0) continue;
    if (!merged.empty() && merged.back().file == range.file) {
      Extent& last = merged.back().bytes;
      const bool inside = range.bytes.end <= last.end;
      const bool close = range.bytes.begin <= last.end || range.bytes.begin - last.end <= kGapBytes;
      if (inside || (close && range.bytes.end - last.begin <= kRequestBytes)) {
        last.end = std::max(last.end, range.bytes.end);
        continue;
      }
    }
    merged.push_back(range);
  }

  std::vector<HeldRange> pieces;
  pieces.reserve(merged.size());
  for (const Range& range : merged) {
    pieces.push_back({range.file, range.bytes.begin, std::vector<std::byte>(range.bytes.size())});
  }
  // At most kOpenFiles files a round: handles are closed only while nothing is in flight.
  for (std::size_t begin = 0; begin < pieces.size();) {
    std::size_t end = begin;
    std::size_t files = 0;
    while (end < pieces.size()) {
      if (end == begin || pieces[end].file != pieces[end - 1].file) {
        if (files == kOpenFiles) break;
        ++files;
      }
      ++end;
    }
    if (open_.size() + files > kOpenFiles) CKPT_CHECK(close_all());
    CKPT_CHECK(fill(std::span(pieces).subspan(begin, end - begin)));
    begin = end;
  }
  std::move(pieces.begin(), pieces.end(), std::back_inserter(held_));
  sort();
  return {};
}

Result<> RangeReader::fill(std::span<HeldRange> pieces) {
  Result<> outcome;  // the first failure; the others are waited for, because their buffers are in use
  std::size_t started = 0;
  std::size_t in_flight = 0;
  std::array<Completion, 32> done;
  while (in_flight > 0 || (outcome && started < pieces.size())) {
    while (outcome && started < pieces.size() && in_flight < io_->queue_depth()) {
      HeldRange& piece = pieces[started];
      auto file = handle(piece.file);
      Result<> submitted = file ? io_->submit({.op = Request::Op::read,
                                               .file = *file,
                                               .offset = piece.begin,
                                               .data = piece.data.data(),
                                               .bytes = piece.data.size(),
                                               .tag = started})
                                : tl::unexpected<Error>(file.error());
      if (!submitted) {
        outcome = std::move(submitted);
        break;
      }
      ++started;
      ++in_flight;
    }
    if (in_flight == 0) break;
    auto count = io_->reap(done, true);
    if (!count) {
      for (HeldRange& piece : pieces) leave_to_kernel(std::move(piece.data));
      return tl::unexpected<Error>(std::move(count).error());
    }
    for (std::size_t i = 0; i < *count; ++i) {
      --in_flight;
      if (auto checked = check(done[i], pieces[done[i].tag]); !checked && outcome) outcome = std::move(checked);
    }
  }
  return outcome;
}

Result<> RangeReader::check(const Completion& done, const HeldRange& piece) const {
  if (!done.bytes) return fail(with_file(done.bytes.error(), paths_[piece.file], piece.begin));
  if (*done.bytes == piece.data.size()) return {};
  const std::uint64_t end = piece.begin + *done.bytes;
  return fail(Error{.code = Errc::corrupt,
                    .message = paths_[piece.file] + ": the file ends at " + std::to_string(end),
                    .file = paths_[piece.file],
                    .offset = end});
}

void HeldRanges::sort() {
  std::sort(held_.begin(), held_.end(), [](const HeldRange& a, const HeldRange& b) {
    return std::tuple(a.file, a.begin, a.data.size()) < std::tuple(b.file, b.begin, b.data.size());
  });
}

void HeldRanges::keep(std::uint32_t file, std::uint64_t begin, std::vector<std::byte> data) {
  held_.push_back({file, begin, std::move(data)});
  sort();
}

std::span<const std::byte> HeldRanges::held(std::uint32_t file, Extent bytes) const {
  const auto after = std::partition_point(held_.begin(), held_.end(), [&](const HeldRange& piece) {
    return std::tie(piece.file, piece.begin) <= std::tie(file, bytes.begin);
  });
  if (after == held_.begin()) return {};
  const HeldRange& piece = *std::prev(after);
  if (piece.file != file) return {};
  const std::uint64_t from = bytes.begin - piece.begin;
  if (from > piece.data.size() || bytes.size() > piece.data.size() - from) return {};
  return std::span(piece.data).subspan(from, bytes.size());
}

Result<FileHandle> RangeReader::handle(std::uint32_t file) {
  if (handles_[file].value < 0) {
    CKPT_TRY(handles_[file], io_->open(paths_[file], {}));
    open_.push_back(file);
  }
  return handles_[file];
}

Result<> RangeReader::close_all() {
  for (const std::uint32_t file : std::exchange(open_, {})) {
    CKPT_CHECK(io_->close(std::exchange(handles_[file], FileHandle{})));
  }
  return {};
}

}  // namespace ckpt::dcp
