#pragma once

#include "convert/dcp/state_entries.hpp"

namespace ckpt::dcp {

/// The state dict of a request whose source spells it in another way, as torch.distributed.checkpoint.state_dict gives
/// it: get_state_dict's two results under "model" and "optimizer".
/// source  torch/distributed/checkpoint/state_dict.py: _get_optim_state_dict
Result<StateEntries> training_entries(const WriteRequest& request);

}  // namespace ckpt::dcp
