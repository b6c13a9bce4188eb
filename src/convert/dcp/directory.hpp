#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/place.hpp"
#include "format/torch/dcp_item.hpp"

namespace ckpt::dcp {

/// The DCP files in a directory, by name.
struct Directory {
  bool has_metadata = false;  ///< `.metadata`, which a save writes last
  /// Ranks R of `__R.metadata`, ascending: saved with use_collectives=False, each rank for itself.
  std::vector<std::uint64_t> metadata_ranks{};
  std::vector<std::string> data{};  ///< `*.distcp`, sorted
  std::uint64_t world_size = 0;     ///< without `.metadata`: one more than the greatest rank in a name; else 0
};
Directory classify(const std::vector<DirEntry>& entries);

/// Folders that Accelerate and the Hugging Face Trainer write for FSDP with sharded state dicts: one directory of this
/// form for the model and one for the optimizer.
/// source  accelerate/utils/fsdp_utils.py: save_fsdp_model, save_fsdp_optimizer (FSDP_MODEL_NAME, OPTIMIZER_NAME)
constexpr std::string_view kFsdpModel = "pytorch_model_fsdp_0";
constexpr std::string_view kFsdpOptimizer = "optimizer_0";
bool is_fsdp_folder(const std::vector<DirEntry>& entries);

/// Format::detect. Directories of Megatron-LM's distributed format, whose metadata.json names its back end, are not
/// ours although they are DCP inside.
Result<std::optional<Match>> detect(const Place& place);

}  // namespace ckpt::dcp
