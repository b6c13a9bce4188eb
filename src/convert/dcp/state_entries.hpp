#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/dcp/index.hpp"
#include "convert/write_request.hpp"

namespace ckpt::dcp {

/// One entry of the state dict that a DCP target holds, before it is cut.
struct StateEntry {
  std::string fqn;
  Path path{};  ///< never empty
  enum class From : std::uint8_t {
    tensor,   ///< elements of a tensor of the source: `tensor`, `dtype`, `shape`, `type`
    scalar,   ///< the only element of a source tensor of any shape, as a 0-dimensional tensor
    literal,  ///< a number that the source does not have as a tensor: `dtype` and its `bytes`, without dimensions
    item,     ///< an item of bytes that the source holds as such: `tensor`, a blob of shape.front() bytes
    object,   ///< a Python object: `bytes` is its pickle
  } from = From::tensor;
  std::uint32_t tensor = 0;  ///< index into Map::tensors
  std::string dtype{};       ///< torch's name without "torch."; "" for items and objects
  Shape shape{};             ///< as torch counts elements
  StoredType type{};         ///< how torch's elements are the model's
  std::string bytes{};
};

struct StateEntries {
  std::vector<StateEntry> entries{};  ///< keys are unique
  std::vector<Finding> notes{};       ///< things that this format cannot hold, decisions
};

/// The state dict of a request.
///
/// A source that keys optimizer state by parameter names keeps its keys and its nesting: DCP, such torch files,
/// anything converted from them, and everything without optimizer state. Any other state gets the names of
/// torch.distributed.checkpoint.state_dict: model.NAME, optimizer.state.NAME.SLOT, optimizer.param_groups,
/// lr_scheduler; fp32 masters, which torch's optimizers do not have, are left out and listed.
///
/// errors  unsupported, with the tensor: an element type that torch does not have; optimizer state whose parameters are
///         unknown. usage: two entries with one key
Result<StateEntries> state_entries(const WriteRequest& request);

}  // namespace ckpt::dcp
