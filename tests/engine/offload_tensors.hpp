#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/offload/offload_store.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"

namespace ckpt {

/// Bytes that no other seed has.
inline std::vector<std::byte> tensor_bytes(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> out(bytes);
  std::uint64_t state = seed * 2 + 1;
  for (std::byte& each : out) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    each = static_cast<std::byte>(state >> 56);
  }
  return out;
}

/// Small sizes, so that few bytes make many buffers: two blocks a buffer. `buffers` are for tensors, beside the one
/// that is kept for reading.
inline OffloadStore::Options small_store(std::size_t buffers, std::string directory) {
  return {.directory = std::move(directory),
          .memory_bytes = (buffers + 1) * 2 * kAlignment,
          .buffer_bytes = 2 * kAlignment,
          .block_bytes = kAlignment,
          .queue_depth = 4};
}

constexpr std::size_t kBufferBytes = 2 * kAlignment;

inline IoFactory on_disk(const MemoryDisk& disk) {
  return [disk] { return Result<std::unique_ptr<Io>>(disk.io(4)); };
}

inline IoFactory failing(const MemoryDisk& disk, std::shared_ptr<FaultPlan> plan) {
  return [disk, plan] { return Result<std::unique_ptr<Io>>(make_fault_io(disk.io(4), plan)); };
}

/// What get gives, or nothing where it fails.
inline std::vector<std::byte> got(OffloadStore& store, const std::string& name) {
  std::vector<std::byte> out(store.size_of(name).value_or(0));
  return store.get(name, out) ? out : std::vector<std::byte>();
}

}  // namespace ckpt
