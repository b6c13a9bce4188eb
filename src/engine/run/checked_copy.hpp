#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/run/buffer_pool.hpp"
#include "engine/run/plan.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt {

struct CheckedCopy {
  std::string source_root;
  std::string target_root;
  std::vector<MapFile> files{};        ///< relative to both roots
  std::span<const Hash128> leaves{};   ///< of the files in order: the expected hashes
  std::uint64_t bytes_per_second = 0;  ///< never faster than this on average since the start; 0: as fast as it goes
  BufferPool* pool = nullptr;          ///< of kRunBufferBytes each, at least two
  const std::atomic<bool>* stop = nullptr;
};

/// The target files of a copy, to create them (Publication::begin).
std::vector<TargetFile> targets_of(const std::vector<MapFile>& files);

/// Copies files from one directory to another, one run of the engine. Each leaf is compared with its hash before it is
/// written, so that bytes which changed on the source's disk go nowhere. The target files exist, with their space; they
/// are cut to size and synced when this returns. Blocks; one thread.
///
/// errors  checksum: with file and offset, of the source; interrupted; io; no_space
Result<> copy_checked(Io& io, const CheckedCopy& copy);

}  // namespace ckpt
