#pragma once

#include <string>

#include "engine/io/io.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt::megatron {

/// The tensors of an iteration that megatron-core before 0.16 saved with the zarr back end: a folder of each, by its key.
/// Objects of ranks and modules, `KEY/shard_N_M.pt`, become blobs: the pickle of one without tensors, which is an object
/// of the map too, or else the file. Roles are those that assign_roles gives.
///
/// Megatron-LM stores every chunk. It reads a missing one as zeros; here it is `incomplete`. So is a folder without
/// `.zarray`, and one that is missing by what the others have: a weight's state, or the weight of some.
///
/// errors  those of ZarrArrays and of Io; corrupt, refused: a damaged or hostile torch.save file
/// source  megatron/core/dist_checkpointing/strategies/zarr.py, common.py (to 0.15)
Result<Map> open_zarr(Io& io, const std::string& root);

}  // namespace ckpt::megatron
