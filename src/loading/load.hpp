#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "engine/io/io.hpp"
#include "engine/run/buffer_pool.hpp"
#include "loading/load_plan.hpp"

namespace ckpt {

struct LoadOptions {
  std::string root;  ///< directory of the map's files
  BufferPool* pool = nullptr;
  unsigned workers = 1;
  bool whole_leaves = false;  ///< read partly needed leaves completely, to compare their hashes too
  const std::atomic<bool>* stop = nullptr;
  std::function<void()> pulse{};  ///< called every few milliseconds by the thread that called, while others read
};

struct ReadReport {
  std::uint64_t needed_bytes = 0;
  std::uint64_t read_bytes = 0;        ///< over-reading included
  std::uint64_t received_bytes = 0;    ///< of those needed: from ranks that hold the same and have read them
  std::uint64_t verified_leaves = 0;   ///< whose stored hash was compared
  std::uint64_t unverified_bytes = 0;  ///< read without a hash to compare: parts of leaves, formats without hashes
};

/// Reads parts of tensors into the caller's memory: only the needed bytes, with the hash of fully read leaves. Local.
///
/// errors  uncovered; checksum, with file, offset and tensor: the destinations of `requests` may then hold bad bytes;
///         io
Result<ReadReport> load_into(const Map& map, std::span<const PartRead> requests, const LeavesOf& leaves, Io& io,
                             const LoadOptions& options);
/// The same for a part of it that is planned already: `requests` are those that the plan was made of.
Result<ReadReport> load_into(const Map& map, std::span<const PartRead> requests, LoadPlan plan, const LeavesOf& leaves,
                             Io& io, const LoadOptions& options);

}  // namespace ckpt
