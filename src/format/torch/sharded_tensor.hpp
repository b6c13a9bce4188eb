#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/model/box.hpp"
#include "format/result.hpp"
#include "format/torch/pickle.hpp"
#include "format/torch/torch_object.hpp"

namespace ckpt::torch {

/// The part of a ShardedTensor on one rank (FSDP1's sharded and local state dicts).
struct ShardedView {
  struct Part {
    Box box;  ///< of the whole tensor
    TensorView local;
  };
  std::vector<Part> parts{};  ///< none if the rank holds nothing
  Shape global_shape{};
  std::string dtype_name{};  ///< torch's: "float32"
};

/// The ShardedTensor of a node; nothing if it is not one. `rank` is the rank whose file it is.
/// errors  corrupt, with the node's offset: it contradicts itself, a part leaves the tensor, or it was saved by another
///         rank; unsupported: a part that is not a plain tensor
/// source  torch/distributed/_shard/sharded_tensor/api.py ShardedTensor.__getstate__, ProcessGroupState; shard.py
///         Shard; _shard/metadata.py ShardMetadata; sharded_tensor/metadata.py ShardedTensorMetadata
Result<std::optional<ShardedView>> as_sharded_tensor(const pickle::Graph& graph, pickle::NodeId node,
                                                     std::uint64_t rank);

}  // namespace ckpt::torch
