#pragma once

#include "convert/dcp_entries.hpp"
#include "convert/write_request.hpp"

namespace ckpt::dcp {

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
