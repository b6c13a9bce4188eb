#pragma once

#include <cstdint>

#include "engine/offload/offload_store.hpp"
#include "format/files/deepspeed_offload.hpp"

namespace ckpt {

/// What a DeepSpeed configuration does not say.
struct OffloadSizes {
  std::uint64_t element_bytes = 4;         ///< of what is offloaded: DeepSpeed counts elements
  std::uint64_t largest_tensor_bytes = 0;  ///< DeepSpeed's optimizer buffers are as large as this
  std::uint64_t rank = 0;                  ///< every process has a directory of its own
};

/// The store that a DeepSpeed configuration asks for: memory for its buffers and for what it keeps in CPU memory, its
/// requests' size, and its threads' requests together in flight.
/// errors   usage: the device is not nvme, or the sizes are more than memory can be
Result<OffloadStore::Options> offload_options(const deepspeed::AioConfig& aio, const deepspeed::OffloadTarget& target,
                                              const OffloadSizes& sizes);

}  // namespace ckpt
