#include "engine/run/staging.hpp"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/io/exceptions_to_result.hpp"
#include "engine/run/fetch.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kCachedBytes = 128 * 1024;  // stay in a core's cache between being copied and being hashed

Hash128 copy_and_hash(const std::byte* from, std::byte* to, std::size_t bytes) {
  Hasher hasher;
  for (std::size_t at = 0; at < bytes; at += kCachedBytes) {
    const std::size_t size = std::min(kCachedBytes, bytes - at);
    std::memcpy(to + at, from + at, size);
    hasher.update({to + at, size});
  }
  return hasher.digest();
}

/// Fetches a dense run of a source without an array, then passes it to the copy as if it were an array.
Result<> fill_copy(const Copy& copy, const MemorySource& source, std::byte* leaf, CastCounts& counts) {
  const std::uint64_t span = source_span(copy);
  if (is_plain_run(copy)) return source.fill(leaf + copy.target_offset, copy.source_offset, span);
  // A cut across the rows: fetched with the gaps, at most one leaf's worth at a time.
  if (span > 2 * kLeafBytes && !copy.dims.empty() && copy.dims[0].count > 1) {
    Copy half = copy;
    Copy rest = copy;
    half.dims[0].count /= 2;
    rest.dims[0].count -= half.dims[0].count;
    rest.source_offset += half.dims[0].count * copy.dims[0].source_stride;
    rest.target_offset += half.dims[0].count * copy.dims[0].target_stride;
    CKPT_CHECK(fill_copy(half, source, leaf, counts));
    return fill_copy(rest, source, leaf, counts);
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(span));
  CKPT_CHECK(source.fill(bytes.data(), copy.source_offset, span));
  carry_out(copy, bytes.data(), copy.source_offset, leaf, counts);
  return {};
}

}  // namespace

Staging::Staging(const Plan& plan, std::span<const MemorySource> sources, BufferPool& pool)
    : plan_(plan), sources_(sources), pool_(pool) {}

Result<> Staging::fill(unsigned threads, bool hash) {
  const std::uint64_t leaves = plan_.totals().leaves;
  const auto others =
      static_cast<unsigned>(std::min<std::uint64_t>(std::max(threads, 1u), std::max<std::uint64_t>(leaves, 1))) - 1;
  const auto fill_own = [this, hash] {
    if (auto done = exceptions_to_result([this, hash] { return fill_some(hash); }); !done)
      stop_with(std::move(done).error());
  };
  {
    std::vector<std::jthread> helpers;
    helpers.reserve(others);
    try {
      for (unsigned i = 0; i < others; ++i) helpers.emplace_back(fill_own);
    } catch (const std::system_error&) {
      // No more threads can be started: the existing ones fill everything.
    }
    fill_own();
  }
  const std::lock_guard held(mutex_);
  if (failure_) return ckpt::fail(*failure_);
  return {};
}

Result<> Staging::fill_some(bool hash) {
  for (;;) {
    const std::uint64_t position = next_.fetch_add(1);
    if (position >= plan_.totals().leaves) return {};
    auto buffer = pool_.acquire(closed_);
    if (!buffer && !closed_.load()) return fail(Errc::memory, "no buffer is left because I/O failed");
    if (!buffer) return {};
    LeafJob job;
    {
      const std::lock_guard held(plan_mutex_);
      CKPT_TRY(job, plan_.leaf(plan_.leaf_at(position)));
    }
    CKPT_TRY(Leaf leaf, fill_one(position, std::move(job), std::move(*buffer), hash));
    {
      const std::lock_guard held(mutex_);
      if (closed_.load()) return {};  // not needed any longer: its buffer is returned
      filled_.push_back(std::move(leaf));
    }
    changed_.notify_one();
  }
}

Result<Staging::Leaf> Staging::fill_one(std::uint64_t position, LeafJob job, BufferPool::Buffer buffer,
                                        bool hash) const {
  std::byte* data = buffer.data();
  std::uint64_t covered = 0;
  for (const Copy& copy : job.copies) covered += target_volume(copy);
  for (const LeafJob::Literal& literal : job.literals) covered += literal.bytes.size();
  if (covered != job.bytes) std::memset(data, 0, static_cast<std::size_t>(job.bytes));
  for (const LeafJob::Literal& literal : job.literals) {
    std::memcpy(data + literal.target_offset, literal.bytes.data(), literal.bytes.size());
  }
  CastCounts counts;
  std::optional<Hash128> hashed;
  for (const Copy& copy : job.copies) {
    const MemorySource& source = sources_[copy.source_file];
    if (hash && source.data != nullptr && is_plain_run(copy) && source_span(copy) == job.bytes) {
      hashed = copy_and_hash(source.data + copy.source_offset, data, static_cast<std::size_t>(job.bytes));
    } else if (source.data != nullptr) {
      carry_out(copy, source.data, 0, data, counts);
    } else {
      CKPT_CHECK(fill_copy(copy, source, data, counts));
    }
  }
  if (hash && !hashed) hashed = hash128({data, static_cast<std::size_t>(job.bytes)});
  Leaf leaf{.position = position, .buffer = std::move(buffer), .hash = hashed};
  leaf.job.file = job.file;
  leaf.job.leaf = job.leaf;
  leaf.job.bytes = job.bytes;
  return leaf;
}

Result<std::optional<Staging::Leaf>> Staging::take(std::chrono::milliseconds patience) {
  std::unique_lock held(mutex_);
  if (filled_.empty() && !failure_) {
    changed_.wait_for(held, patience, [&] { return !filled_.empty() || failure_ || taken_ == plan_.totals().leaves; });
  }
  if (failure_) return ckpt::fail(*failure_);
  if (filled_.empty()) return std::optional<Leaf>();
  std::optional<Leaf> leaf(std::move(filled_.front()));
  filled_.pop_front();
  ++taken_;
  if (taken_ == plan_.totals().leaves) changed_.notify_all();
  return leaf;
}

bool Staging::ended() const {
  const std::lock_guard held(mutex_);
  return taken_ == plan_.totals().leaves;
}

void Staging::close() {
  if (!ended()) stop_with({.code = Errc::interrupted, .message = "the save has already ended"});
  const std::lock_guard held(mutex_);
  filled_.clear();  // gives their buffers back
}

/// Threads that fill or take, now or later, fail: none waits forever.
void Staging::stop_with(Error error) {
  closed_.store(true);
  const std::lock_guard held(mutex_);
  if (!failure_) failure_ = std::move(error);
  changed_.notify_all();
}

}  // namespace ckpt
