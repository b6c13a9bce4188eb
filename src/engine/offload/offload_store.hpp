#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Makes an Io; called once, on the thread that will use it.
using IoFactory = std::function<Result<std::unique_ptr<Io>>()>;

/// Tensors that do not fit in memory, swapped to files of a fast local disk: experts of a mixture, optimizer state.
///
/// Memory is one pool of equal buffers; a tensor takes whole buffers, and nothing else holds tensor bytes, so the bound
/// always holds. `put` copies into buffers and returns; a thread of the store writes them in the background. Written
/// tensors stay in memory until their buffers are needed; the least recently used are evicted first. `prefetch` reads
/// ahead. One file per tensor, overwritten in place by the next `put` of the same size.
///
/// Swap files are not checkpoints: they are not synced, and are removed with the store. Every failure is reported: a
/// tensor that could not be written stays in memory and can be read; the next `put` or `flush` reports it, once, and
/// the write is retried by `flush` and when memory is needed. A `put` that fails has stored nothing.
///
/// Used by one thread, the trainer's. Not to be used in a forked child.
class OffloadStore {
 public:
  struct Options {
    std::string directory{};  ///< of this store alone: swap files that are found there are removed. Made if not there
    std::size_t memory_bytes = std::size_t{1} << 30;  ///< of all buffers; at least two. One is kept for reading
    std::size_t buffer_bytes = std::size_t{4}
                               << 20;  ///< a multiple of kAlignment; the last one of a tensor may be part empty
    std::size_t block_bytes = std::size_t{4} << 20;  ///< of one request, a multiple of kAlignment; at most a buffer's
    std::size_t queue_depth = 16;                    ///< requests in flight, at most the limit of the Io
  };
  struct Statistics {
    std::uint64_t hits = 0;            ///< gets that found all in memory, read ahead included
    std::uint64_t misses = 0;          ///< gets that had to read
    std::uint64_t hit_bytes = 0;       ///< by gets: parts in memory or being read
    std::uint64_t miss_bytes = 0;      ///< by gets: parts that had to be read
    std::uint64_t read_bytes = 0;      ///< from disk, with the padding of last blocks
    std::uint64_t written_bytes = 0;   ///< to disk, with padding
    std::uint64_t write_failures = 0;  ///< of buffers, those that succeeded later included
    std::uint64_t memory_bytes = 0;    ///< in buffers now
    std::uint64_t peak_memory_bytes = 0;
    std::string io_name{};    ///< "io_uring", "threads"
    std::string page_kind{};  ///< of the pool
    bool direct = true;       ///< every file so far took direct I/O
  };

  /// errors   usage: sizes that make no sense; locked: another store has the directory; those of the Io; memory
  static Result<std::unique_ptr<OffloadStore>> open(IoFactory make_io, const Options& options);
  /// Waits for requests in flight and removes the files.
  ~OffloadStore();
  OffloadStore(const OffloadStore&) = delete;
  OffloadStore& operator=(const OffloadStore&) = delete;

  /// Stores a copy of `bytes` under `name` (any bytes, also ""), replacing an earlier value. Waits while all buffers
  /// wait for the disk. A tensor larger than the memory is written through.
  /// errors   the unreported failure of an earlier tensor (`tensor` names it); no_space, io: no buffer, because they
  ///          hold unwritable data. Nothing was stored and the earlier value remains, except for a tensor larger than
  ///          the memory; the message says so.
  Result<> put(const std::string& name, std::span<const std::byte> bytes);
  /// Copies the tensor out; out.size() must be its size.
  /// errors   not_found; usage: another size; io, corrupt: it cannot be read, and may be tried again
  Result<> get(const std::string& name, std::span<std::byte> out);
  /// Begins to read the tensor, as buffers become free, and keeps it until `get`. Returns at once; `get` reports a
  /// failure.
  Result<> prefetch(const std::string& name);
  /// Removes the tensor and its file. not_found if there is no such tensor.
  Result<> remove(const std::string& name);
  /// Waits until every tensor is on disk; they also stay in memory. The error of one that cannot be written.
  Result<> flush();

  std::optional<std::uint64_t> size_of(const std::string& name) const;
  Statistics statistics() const;

 private:
  struct Impl;
  explicit OffloadStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckpt
