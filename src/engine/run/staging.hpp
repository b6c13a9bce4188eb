#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "engine/run/buffer_pool.hpp"
#include "engine/run/plan.hpp"
#include "format/hash.hpp"
#include "format/result.hpp"

namespace ckpt {

/// A source file of a plan that is in memory: the caller's array, or a callback for memory that the processor cannot
/// read (a device's). Neither is used after Staging::fill has returned.
struct MemorySource {
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  /// Copies bytes [offset, offset + size) of the source to `out`; used where `data` is null. Called from several
  /// threads at once, each for another range.
  std::function<Result<>(std::byte* out, std::uint64_t offset, std::uint64_t size)> fill{};
};

/// Leaves that pass from memory to a run: the owner of the memory fills them, workers hash and write them. Both
/// sides work at once; the pool bounds the leaves in between. The plan and the pool outlive it, and `sources` are its
/// source map's files, in order.
class Staging {
 public:
  Staging(const Plan& plan, std::span<const MemorySource> sources, BufferPool& pool);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Fills every leaf, with `threads` threads of which the caller is one, and waits while the pool is empty.
  /// With `hash` the leaves are hashed here, each piece while it is in the cache, for callers that wait for
  /// the disk anyway. When this returns the sources may change. After a failure the run fails with the same
  /// error.
  /// errors  what `fill` callbacks return or throw; memory; interrupted: the run has failed, or was stopped
  Result<> fill(unsigned threads, bool hash = false);

  struct Leaf {
    std::uint64_t position = 0;  ///< in the plan's order
    LeafJob job{};               ///< without copies and literals: they are done
    BufferPool::Buffer buffer{};
    std::optional<Hash128> hash{};  ///< of its bytes, if filling has computed it
  };
  /// The next filled leaf; nothing when none came within `patience`, or when all were taken (then `ended`).
  /// errors  that of `fill`; interrupted: closed before all were taken
  Result<std::optional<Leaf>> take(std::chrono::milliseconds patience);
  /// Every leaf has been filled and taken.
  bool ended() const;
  /// The run has ended, with success or not: neither side waits, and no buffer of the pool is held here. If leaves are
  /// left, both sides fail.
  void close();

 private:
  Result<> fill_some(bool hash);
  Result<Leaf> fill_one(std::uint64_t position, LeafJob job, BufferPool::Buffer buffer, bool hash) const;
  void stop_with(Error error);

  const Plan& plan_;
  std::span<const MemorySource> sources_;
  BufferPool& pool_;
  std::atomic<bool> closed_{false};
  std::atomic<std::uint64_t> next_{0};  // position to fill
  std::mutex plan_mutex_;               // chunk indices are used by one thread at a time
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Leaf> filled_;       // guarded by mutex_
  std::uint64_t taken_ = 0;       // guarded by mutex_
  std::optional<Error> failure_;  // guarded by mutex_; the first one
};

}  // namespace ckpt
