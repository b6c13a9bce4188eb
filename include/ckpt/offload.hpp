#pragma once

// Tensors swapped to a local disk, for C++20: a header over the C interface. ckpt/offload.h documents each function and
// its failures. Nothing here throws except std::bad_alloc.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ckpt/ckpt.hpp"
#include "ckpt/offload.h"

namespace ckpt {
inline namespace v1 {

/// The swapped tensors of one process. Move-only; destroying it removes the files.
class Offload {
 public:
  struct Options {
    std::string directory{};         ///< used by this object only
    std::uint64_t memory_bytes = 0;  ///< never exceeded; 0: 1 GiB
    std::uint64_t buffer_bytes = 0;  ///< 0: 4 MiB
    std::uint64_t block_bytes = 0;   ///< 0: 4 MiB or buffer_bytes
    std::uint32_t queue_depth = 0;   ///< 0: 16
    std::string io = "auto";
  };
  enum class Part : std::int32_t { parameters = CKPT_OFFLOAD_PARAMETERS, optimizer = CKPT_OFFLOAD_OPTIMIZER };
  struct Sizes {
    std::uint64_t element_bytes = 4;
    std::uint64_t largest_tensor_bytes = 0;
    std::uint64_t rank = 0;
  };

  static Result<Offload> open(const Options& options) {
    ckpt_offload_options c{};
    c.size = sizeof c;
    c.directory = options.directory.c_str();
    c.memory_bytes = options.memory_bytes;
    c.buffer_bytes = options.buffer_bytes;
    c.block_bytes = options.block_bytes;
    c.queue_depth = options.queue_depth;
    c.io = options.io.c_str();
    ckpt_offload* handle = nullptr;
    if (const int code = ckpt_offload_open(&c, &handle)) return detail::failure(code);
    return Offload(handle);
  }
  /// Opens the store that a DeepSpeed configuration (JSON text) describes: see ckpt_offload_open_deepspeed.
  static Result<Offload> open_deepspeed(const std::string& configuration, Part part, const Sizes& sizes) {
    const ckpt_offload_sizes c{sizeof(ckpt_offload_sizes), sizes.element_bytes, sizes.largest_tensor_bytes, sizes.rank};
    ckpt_offload* handle = nullptr;
    if (const int code =
            ckpt_offload_open_deepspeed(configuration.c_str(), static_cast<std::int32_t>(part), &c, &handle)) {
      return detail::failure(code);
    }
    return Offload(handle);
  }

  /// Stores a copy, which is written in the background.
  Result<> put(const std::string& name, std::span<const std::byte> bytes) {
    return detail::check(ckpt_offload_put(offload_.get(), name.c_str(), bytes.data(), bytes.size()));
  }
  /// Copies the tensor to `out`, which must have its size.
  Result<> get(const std::string& name, std::span<std::byte> out) {
    return detail::check(ckpt_offload_get(offload_.get(), name.c_str(), out.data(), out.size()));
  }
  /// Begins to read the tensor; returns at once.
  Result<> prefetch(const std::string& name) {
    return detail::check(ckpt_offload_prefetch(offload_.get(), name.c_str()));
  }
  Result<> remove(const std::string& name) { return detail::check(ckpt_offload_remove(offload_.get(), name.c_str())); }
  /// Waits until every tensor is written.
  Result<> flush() { return detail::check(ckpt_offload_flush(offload_.get())); }
  Result<std::uint64_t> bytes(const std::string& name) const {
    std::uint64_t bytes = 0;
    if (const int code = ckpt_offload_bytes(offload_.get(), name.c_str(), &bytes)) return detail::failure(code);
    return bytes;
  }
  ckpt_offload_stats stats() const {
    ckpt_offload_stats stats{};
    stats.size = sizeof stats;
    static_cast<void>(ckpt_offload_get_stats(offload_.get(), &stats));
    return stats;
  }

 private:
  explicit Offload(ckpt_offload* offload) : offload_(offload) {}
  std::unique_ptr<ckpt_offload, detail::Release<ckpt_offload_close>> offload_;
};

}  // namespace v1
}  // namespace ckpt
