#include "api/offload/deepspeed_options.hpp"

#include <algorithm>
#include <string>

#include "format/checked.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kMostBlockBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMostInFlight = 256;

Result<std::uint64_t> memory_bytes(const deepspeed::OffloadTarget& target, const OffloadSizes& sizes) {
  std::uint64_t buffer = sizes.largest_tensor_bytes;
  if (target.buffer_elements > 0) {
    CKPT_TRY(buffer, checked_mul(target.buffer_elements, sizes.element_bytes));
  }
  CKPT_TRY(const std::uint64_t buffers, checked_mul(target.buffer_count, buffer));
  CKPT_TRY(const std::uint64_t kept, checked_mul(target.max_elements_in_cpu, sizes.element_bytes));
  return checked_add(buffers, kept);
}

}  // namespace

Result<OffloadStore::Options> offload_options(const deepspeed::AioConfig& aio, const deepspeed::OffloadTarget& target,
                                              const OffloadSizes& sizes) {
  if (target.device != deepspeed::OffloadTarget::Device::nvme) {
    return fail(Errc::usage, "offload store: options: the configuration offloads nothing to a disk");
  }
  OffloadStore::Options out;
  out.directory = join_path(target.nvme_path, "ckpt-offload-rank" + std::to_string(sizes.rank));
  out.block_bytes = static_cast<std::size_t>(
      round_up(std::clamp<std::uint64_t>(aio.block_bytes, kAlignment, kMostBlockBytes), kAlignment));
  out.buffer_bytes = std::max(out.buffer_bytes, out.block_bytes);
  const std::uint64_t threads = std::clamp<std::uint64_t>(aio.thread_count, 1, kMostInFlight);
  const std::uint64_t depth = std::clamp<std::uint64_t>(aio.queue_depth, 1, kMostInFlight);
  out.queue_depth = static_cast<std::size_t>(std::min(depth * threads, kMostInFlight));

  auto wanted = memory_bytes(target, sizes);
  if (!wanted || *wanted > SIZE_MAX / 4) {
    return fail(Errc::usage, "offload store: options: the configuration's buffers exceed the address space");
  }
  // Whole buffers, and the one that is kept for reading.
  out.memory_bytes = static_cast<std::size_t>(
      round_up(std::max<std::uint64_t>(*wanted, out.buffer_bytes), out.buffer_bytes) + out.buffer_bytes);
  return out;
}

}  // namespace ckpt
