#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert/place.hpp"
#include "engine/io/io.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"

/// Local checkpoints of NVIDIA's resiliency extension (--non-persistent-ckpt-type local): every rank keeps its own part
/// on its node, RANK/iter_NNNNNNN_RANK_local.pt, and perhaps those of other ranks.
namespace ckpt::megatron {

struct LocalFiles {
  std::uint64_t iteration = 0;
  std::vector<std::string> paths{};  ///< by rank, below the root; "" where none is there
};

/// The files of the newest iteration of which all ranks are there that any iteration has; else of the newest one. Nothing
/// if there are none.
///
/// source  nvidia_resiliency_ext/checkpointing/local/ckpt_managers/local_manager.py, base_manager.py
Result<std::optional<LocalFiles>> find_local_files(const Place& place);

/// The tensors that the ranks' files hold parts of, by the keys that a torch_dist checkpoint gives them. Replicas on
/// several ranks are all in the map.
///
/// errors  incomplete: a rank's file is missing; corrupt: a file contradicts itself or another one; unsupported: a file
///         without Megatron-LM's state; those of open_torch_archive and of Io
/// source  megatron/core/dist_checkpointing/tensor_aware_state_dict.py, mapping.py
Result<Map> open_local_files(Io& io, const std::string& root, const LocalFiles& files);

}  // namespace ckpt::megatron
