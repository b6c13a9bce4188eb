#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/deepspeed/files/file_set.hpp"
#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/files/optim_states.hpp"

namespace ckpt::deepspeed {

/// The directory of a tag with optimizer state swapped to NVMe, one directory per rank.
constexpr std::string_view kSwapFolder = "offloaded_tensors";

/// Stage 3 with an optimizer offloaded to NVMe: a swapped sub-group is an empty tensor in the optimizer file, and its
/// elements, in the layout of that file, are raw in `rankRR/ID.tensor.swp`, `rankRR/SLOT-ID.tensor.swp`. Points the
/// empty runs of such sub-groups at these files; others are unchanged.
///
/// folder   kSwapFolder of the tag, below the root; rank  the global rank
/// shapes   of the sub-groups' parameters
/// returns  the number of files used
/// errors   incomplete: a file is missing; corrupt: a file whose size is not that of the sub-group, rounded up to
///          OptimStates::swap_alignment; refused: an identifier that is not a list of parameter numbers
/// source   deepspeed/runtime/swap_tensor/optimizer_utils.py: OptimizerSwapper, SwapTensorContext
Result<std::uint64_t> place_swapped(FileSet& files, const std::string& folder, std::uint64_t rank,
                                    const std::vector<GroupShapes>& shapes, OptimStates& states);

}  // namespace ckpt::deepspeed
