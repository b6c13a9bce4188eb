#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "format/files/deepspeed_offload.hpp"

// Counts of an accepted configuration are exact JSON numbers, and a path stands where one is needed.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = ckpt::deepspeed::parse_offload_config({reinterpret_cast<const char*>(data), size});
  if (!parsed) return 0;
  for (const auto* target : {&parsed->parameters, &parsed->optimizer}) {
    const bool nvme = target->device == ckpt::deepspeed::OffloadTarget::Device::nvme;
    if (nvme && target->nvme_path.empty()) std::abort();
    if (target->buffer_count > (std::uint64_t{1} << 53) || target->buffer_elements > (std::uint64_t{1} << 53))
      std::abort();
  }
  if (parsed->aio.block_bytes == 0 || parsed->aio.queue_depth == 0 || parsed->aio.thread_count == 0) std::abort();
  return 0;
}
