#pragma once

#include "convert/megatron/rank_files.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt::megatron {

/// Joins what all ranks wrote to the tensors of the whole model, under the names that torch_dist gives them: layers that
/// are alike are stacked, experts too, and what tensor-parallel ranks divided is put together. Copies that several
/// ranks hold are replicas. Optimizer state gets the name of its weight; of a form that is not known it stays as it is,
/// under the folder of its rank, with a note. So do the states of random generators.
///
/// root    for messages
/// errors  unsupported: it is not known how ranks divide a weight; corrupt: ranks contradict each other; incomplete: the
///         stages do not hold as many layers as the run's arguments say
Result<Map> merge_ranks(const Ranks& ranks, const std::string& root);

}  // namespace ckpt::megatron
