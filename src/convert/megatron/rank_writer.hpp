#pragma once

#include <array>
#include <string_view>

#include "convert/write_request.hpp"

namespace ckpt::megatron {

/// Lays out a run's directory as Megatron-LM loads it with --ckpt-format torch: one iteration with the files of each
/// model-parallel rank, for the tensor-, pipeline- and expert-parallel sizes of WriteRequest::options or else of the
/// source, and the tracker that names it. Masters and moments go where the run's optimizer keeps them: numbered beside the
/// weights, or in distrib_optim.pt. Random states are left out.
///
/// errors  unsupported: no weight has a name of Megatron-LM's; a weight that the sizes do not divide; optimizer state of
///         a weight whose place in its module is not known; those of common_state
/// source  megatron/training/checkpointing.py: get_checkpoint_name, generate_state_dict;
///         megatron/core/optimizer/optimizer.py, distrib_optimizer.py: state_dict, get_parameter_state_dp_zero
Result<Skeleton> lay_out_ranks(const WriteRequest& request);

/// TargetOptions that it takes.
constexpr std::array<std::string_view, 8> kRankOptions{"tp",  "pp", "vpp",           "ep",
                                                       "etp", "dp", "decoder-first", "decoder-last"};

}  // namespace ckpt::megatron
