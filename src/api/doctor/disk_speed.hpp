#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// The disk speed that one process gets from a save and a load: new files, direct I/O if possible, 4 MiB requests, 8 in
/// flight, memory that was used before. No hashing, no copying: an upper bound of both.
struct DiskSpeed {
  std::uint64_t bytes = 0;
  double write_s = 0;  ///< from the first request until the disk said that all is durable
  double sync_s = 0;   ///< of that, the wait after the last request
  double read_s = 0;
  bool direct = false;  ///< false: the data may have been read from memory

  double write_rate() const { return write_s > 0 ? static_cast<double>(bytes) / write_s : 0; }
  double read_rate() const { return read_s > 0 ? static_cast<double>(bytes) / read_s : 0; }
};

/// The default size: more than controllers cache, and done in seconds.
constexpr std::uint64_t kBenchBytes = std::uint64_t{1} << 30;

/// Writes a file of `bytes` (rounded up to 4 MiB) in the directory, reads it, and removes it.
/// errors  no_space; io; interrupted: `stop` was set
Result<DiskSpeed> measure_disk(Io& io, const std::string& directory, std::uint64_t bytes,
                               const std::atomic<bool>* stop);

}  // namespace ckpt
