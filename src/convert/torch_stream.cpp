#include "convert/torch_stream.hpp"

#include <algorithm>

#include "engine/io/leave_to_kernel.hpp"
#include "format/text/error_context.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kLeastRead = 16 << 10;     // a smaller read costs as much
constexpr std::uint64_t kWidestGap = 16 << 10;     // bytes that are read only to save a system call
constexpr std::uint64_t kLongestGroup = 64 << 10;  // times the queue depth: the memory of read_each

}  // namespace

/// begins[first, last), read as the range [begin, end).
struct StreamReader::Group {
  std::size_t first = 0;
  std::size_t last = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Error StreamReader::at(Error error, std::uint64_t offset) const {
  error = with_context(std::move(error), path_);
  error.file = path_;
  error.offset = in_file(offset + error.offset.value_or(0));
  return error;
}

std::span<const std::byte> StreamReader::cached(std::uint64_t begin, std::uint64_t bytes) const {
  for (const Window& window : windows_) {
    if (begin < window.begin || begin - window.begin > window.bytes.size()) continue;
    const std::uint64_t skip = begin - window.begin;
    if (bytes <= window.bytes.size() - skip) return std::span(window.bytes).subspan(skip, bytes);
  }
  return {};
}

Result<> StreamReader::check_inside(std::uint64_t begin, std::uint64_t bytes) const {
  if (begin <= size() && bytes <= size() - begin) return {};
  return fail(at({.code = Errc::corrupt,
                  .message = "" + std::to_string(bytes) + " bytes at " + std::to_string(begin) +
                             " run past the end of the stream"},
                 begin));
}

Result<std::span<const std::byte>> StreamReader::read(std::uint64_t begin, std::uint64_t bytes) {
  CKPT_CHECK(check_inside(begin, bytes));
  if (bytes == 0) return std::span<const std::byte>{};
  if (const auto known = cached(begin, bytes); !known.empty()) return known;
  const std::uint64_t wanted = std::min(std::max(bytes, kLeastRead), size() - begin);
  Window window{.begin = begin, .bytes = std::vector<std::byte>(wanted)};
  CKPT_CHECK(io_.read_at(file_, in_file(begin), window.bytes));
  windows_.push_back(std::move(window));
  return std::span<const std::byte>(windows_.back().bytes).first(bytes);
}

Result<> StreamReader::read_each(std::span<const std::uint64_t> begins, std::size_t bytes, const Visitor& visit) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    CKPT_CHECK(check_inside(begins[i], bytes));
    if (const auto known = cached(begins[i], bytes); !known.empty()) {
      CKPT_CHECK(visit(i, known));
      continue;
    }
    const std::uint64_t end = begins[i] + bytes;
    const bool joins = !groups.empty() && groups.back().last == i && begins[i] - groups.back().begin < kLongestGroup &&
                       (begins[i] < groups.back().end || begins[i] - groups.back().end <= kWidestGap);
    if (joins) {
      groups.back().last = i + 1;
      groups.back().end = std::max(groups.back().end, end);
    } else {
      groups.push_back({i, i + 1, begins[i], end});
    }
  }
  return read_groups(groups, begins, bytes, visit);
}

Result<> StreamReader::read_groups(std::span<const Group> groups, std::span<const std::uint64_t> begins,
                                   std::size_t bytes, const Visitor& visit) {
  const std::size_t depth = std::min(groups.size(), io_.queue_depth());
  std::vector<std::vector<std::byte>> buffers(depth);
  std::vector<std::size_t> group_of(depth);
  std::vector<std::size_t> idle;
  for (std::size_t slot = depth; slot-- > 0;) idle.push_back(slot);
  std::vector<Completion> done(depth);
  Result<> outcome{};
  std::size_t next = 0;
  std::size_t in_flight = 0;
  // After a failure nothing more is submitted, but requests in flight own their buffer until they are reaped.
  while ((outcome && next < groups.size()) || in_flight != 0) {
    while (outcome && next < groups.size() && !idle.empty()) {
      const std::size_t slot = idle.back();
      const Group& group = groups[next];
      buffers[slot].resize(group.end - group.begin);
      group_of[slot] = next;
      outcome = io_.submit({.op = Request::Op::read,
                            .file = file_,
                            .offset = in_file(group.begin),
                            .data = buffers[slot].data(),
                            .bytes = buffers[slot].size(),
                            .tag = slot});
      if (!outcome) break;
      idle.pop_back();
      ++next;
      ++in_flight;
    }
    if (in_flight == 0) break;
    const auto reaped = io_.reap(done, true);
    if (!reaped) {
      leave_to_kernel(std::move(buffers));
      return fail(reaped.error());
    }
    const std::size_t count = *reaped;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t slot = done[i].tag;
      const Group& group = groups[group_of[slot]];
      --in_flight;
      idle.push_back(slot);
      if (!outcome) continue;
      if (!done[i].bytes) {
        outcome = tl::unexpected<Error>(std::move(done[i].bytes).error());
      } else if (*done[i].bytes != buffers[slot].size()) {
        outcome = fail(at({.code = Errc::corrupt, .message = "the file became shorter"}, group.begin));
      }
      for (std::size_t k = group.first; outcome && k < group.last; ++k) {
        outcome = visit(k, std::span<const std::byte>(buffers[slot]).subspan(begins[k] - group.begin, bytes));
      }
    }
  }
  return outcome;
}

}  // namespace ckpt
