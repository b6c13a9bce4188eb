#pragma once

#include <array>
#include <string_view>

#include "convert/write_request.hpp"

namespace ckpt::megatron {

/// Lays out a run's directory as Megatron-LM loads it with any tensor-, pipeline- and data-parallel size: one iteration
/// in torch_dist (common.pt, `__R_0.distcp`, `.metadata`, metadata.json), and the tracker that names it. Layers are stacked
/// as in the source; masters and moments are stored by weight (fully_reshardable). Weights of other sources must have
/// Megatron-LM's names (--names megatron).
///
/// errors  unsupported: no weight has a name of Megatron-LM's; those of common_state and dcp::lay_out_entries
/// source  megatron/core/dist_checkpointing; megatron/training/checkpointing.py
Result<Skeleton> lay_out(const WriteRequest& request);

/// TargetOptions that it takes.
constexpr std::array<std::string_view, 1> kTargetOptions{"ranks"};

}  // namespace ckpt::megatron
