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
/// Memory is one pool of equal buffers; a tensor takes whole ones, and nothing else holds tensor bytes, so the bound
/// cannot be passed. `put` copies into buffers and returns, a thread of the store writes them behind the caller's back;
/// what was written stays in memory until its buffers are wanted, the longest unused first. `prefetch` reads ahead.
/// One file a tensor, written in place at the next `put` of the same size.
///
/// Swap files are no checkpoint: they are not synced, and gone with the store. But no failure passes in silence. A
/// tensor that could not be written stays in memory, still to be had; the next `put` or `flush` tells of it, once, and
/// it is tried again when memory is needed and by `flush`. A `put` that fails has stored nothing.
///
/// Used by one thread, the one that trains. Not to be used in a forked child.
class OffloadStore {
 public:
  struct Options {
    std::string directory{};  ///< of this store alone: swap files that are found there are removed. Made if not there
    std::size_t memory_bytes = std::size_t{1} << 30;  ///< of all buffers; at least two. One is kept for reading
    std::size_t buffer_bytes = std::size_t{4}
                               << 20;  ///< a multiple of kAlignment; the last one of a tensor may be part empty
    std::size_t block_bytes = std::size_t{4} << 20;  ///< of one request, a multiple of kAlignment; at most a buffer's
    std::size_t queue_depth = 16;                    ///< requests in flight, at most what the Io holds
  };
  struct Statistics {
    std::uint64_t hits = 0;            ///< gets that found all in memory, read ahead included
    std::uint64_t misses = 0;          ///< gets that had to read
    std::uint64_t hit_bytes = 0;       ///< of both kinds of gets, what was in memory or on its way there
    std::uint64_t miss_bytes = 0;      ///< and what was not
    std::uint64_t read_bytes = 0;      ///< from disk, with the padding of last blocks
    std::uint64_t written_bytes = 0;   ///< to disk, likewise
    std::uint64_t write_failures = 0;  ///< of buffers, those that succeeded later included
    std::uint64_t memory_bytes = 0;    ///< in buffers now
    std::uint64_t peak_memory_bytes = 0;
    std::string io_name{};    ///< "io_uring", "threads"
    std::string page_kind{};  ///< of the pool
    bool direct = true;       ///< every file so far took direct I/O
  };

  /// errors   usage: sizes that make no sense; locked: another store has the directory; those of the Io; memory
  static Result<std::unique_ptr<OffloadStore>> open(IoFactory make_io, const Options& options);
  /// Ends what is under way and removes the files.
  ~OffloadStore();
  OffloadStore(const OffloadStore&) = delete;
  OffloadStore& operator=(const OffloadStore&) = delete;

  /// Stores a copy of `bytes` under `name` (any bytes, "" too), instead of what was there. Waits while every buffer
  /// waits for the disk. More than the memory holds is written through.
  /// errors   the untold failure of an earlier tensor (`tensor` names it); no_space, io: no buffer, because what fills
  ///          them cannot be written. Nothing was stored, the earlier value stands; only where `bytes` are more than
  ///          the memory holds is it gone, and the message says so.
  Result<> put(const std::string& name, std::span<const std::byte> bytes);
  /// Copies the tensor out; out.size() must be its size.
  /// errors   not_found; usage: another size; io, corrupt: it cannot be read, and may be tried again
  Result<> get(const std::string& name, std::span<std::byte> out);
  /// Begins to read what is not in memory, as buffers become free, and holds it until `get`. Returns at once; a failure
  /// is told by `get`.
  Result<> prefetch(const std::string& name);
  /// Forgets the tensor and its file. not_found if there is none.
  Result<> remove(const std::string& name);
  /// Waits until every tensor is on disk; they stay in memory too. An error tells of one that is not.
  Result<> flush();

  std::optional<std::uint64_t> size_of(const std::string& name) const;
  Statistics statistics() const;

 private:
  struct Impl;
  explicit OffloadStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckpt
