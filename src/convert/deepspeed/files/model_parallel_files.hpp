#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "convert/deepspeed/files/files.hpp"

namespace ckpt::deepspeed {

/// The weights of one layer of a pipeline, of one tensor-parallel rank.
struct LayerFile {
  std::uint64_t layer = 0;
  std::uint64_t tensor_rank = 0;
  std::string name;
};

/// The files of a tag that several tensor- or pipeline-parallel ranks wrote. The number of a model-parallel rank is
/// pipeline rank x tensor-parallel ranks + tensor rank.
/// source   deepspeed/runtime/engine.py: _get_ckpt_name; deepspeed/runtime/pipe/module.py: ckpt_layer_path
struct ModelParallelFiles {
  std::map<std::uint64_t, std::string> models{};                 ///< by model-parallel rank: stages 0 to 2
  std::map<std::uint64_t, std::vector<RankFile>> rank_models{};  ///< stage 3: by model-parallel rank, then by data rank
  std::map<std::uint64_t, std::vector<RankFile>> optims{};       ///< by model-parallel rank, then by data rank
  std::vector<LayerFile> layers{};                               ///< by layer, then by tensor rank
  std::map<std::uint64_t, ExpertFiles> experts{};                ///< by model-parallel rank
  std::map<std::uint64_t, std::vector<RankFile>>
      expert_optims{};  ///< stage 0: by model-parallel rank, then by expert-parallel rank
  std::string optim_prefix{};
  std::string optim_suffix = "_optim_states.pt";

  std::string model_name(std::uint64_t model_rank) const;
  std::string rank_model_name(std::uint64_t model_rank, std::uint64_t data_rank) const;
  std::string optim_name(std::uint64_t model_rank, std::uint64_t data_rank) const;
};

/// True when a listing holds files of model-parallel ranks other than the first, or of layers of a pipeline.
bool is_model_parallel(const std::vector<DirEntry>& entries);

/// errors   unsupported, naming the kind: files of experts that name no layer; corrupt: files of two saves
Result<ModelParallelFiles> sort_model_parallel_files(const std::vector<DirEntry>& entries);

}  // namespace ckpt::deepspeed
