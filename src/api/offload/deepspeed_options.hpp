#pragma once

#include <cstdint>

#include "engine/offload/offload_store.hpp"
#include "format/files/deepspeed_offload.hpp"

namespace ckpt {

/// Values that a DeepSpeed configuration does not contain.
struct OffloadSizes {
  std::uint64_t element_bytes = 4;         ///< of the offloaded tensors: DeepSpeed counts elements
  std::uint64_t largest_tensor_bytes = 0;  ///< DeepSpeed's optimizer buffers are as large as this
  std::uint64_t rank = 0;                  ///< every process has a separate directory
};

/// The store that a DeepSpeed configuration describes: memory for its buffers and for tensors kept in CPU memory, the
/// size of requests, and the requests in flight of all its threads.
/// errors   usage: the device is not nvme, or the sizes exceed memory
Result<OffloadStore::Options> offload_options(const deepspeed::AioConfig& aio, const deepspeed::OffloadTarget& target,
                                              const OffloadSizes& sizes);

}  // namespace ckpt
