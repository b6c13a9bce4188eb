#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "convert/deepspeed/files/detect.hpp"
#include "convert/deepspeed/files/file_set.hpp"
#include "convert/deepspeed/files/model_parallel_files.hpp"
#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/files/optim_states.hpp"
#include "convert/deepspeed/model_parallel/pipeline_stages.hpp"

namespace ckpt::deepspeed {

/// The layer files of a pipeline. A file names its tensors as the layer does ("weight"); the pipeline names them by the
/// layer's number ("3.weight"), or by the key of a tied layer ("tied_modules.embed.weight"), which no layer file has.
class PipelineLayers {
 public:
  struct Layer {
    std::uint64_t number = 0;
    std::uint64_t tensor_rank = 0;
    std::string path;                    ///< of its file, below the checkpoint's root
    std::vector<NamedTensor> tensors{};  ///< named as in the file, in its order
  };

  /// Opens every layer file of a tag, which outlives this.
  /// errors  corrupt: a rank that this save does not have; unsupported: an entry that is not a tensor
  static Result<PipelineLayers> read(FileSet& set, const Tag& tag, const std::vector<LayerFile>& files,
                                     std::uint64_t tensor_ranks);

  /// The path of a layer's file, there or not.
  std::string path_of(std::uint64_t number, std::uint64_t tensor_rank) const;

  const std::vector<Layer>& all() const { return layers_; }
  bool empty() const { return layers_.empty(); }

  /// The parameters of each flat group of one stage, from the fragments that its optimizer's files list: for optimizers
  /// that store names, with model files that store no shapes (BF16_Optimizer without ZeRO).
  ///
  /// ranks    the optimizer's files of all data-parallel ranks of the stage, in order
  /// errors   incomplete, with the layer's file if known: no layer file holds a parameter of this size
  Result<std::vector<GroupShapes>> shapes_from_fragments(const std::vector<OptimStates>& ranks,
                                                         std::uint64_t tensor_rank) const;

  /// The parameters that each stage trains, for optimizers that store no names.
  ///
  /// buffers  names of tensors that are not parameters, as in the pipeline
  /// groups   of each stage's optimizer, of the first tensor-parallel rank
  /// returns  for each stage its parameters in the order of its module, by their layer's number; nothing if the
  ///          division is not certain (assign_layers)
  std::optional<std::vector<std::vector<NamedTensor>>> stage_modules(
      const std::unordered_set<std::string>& buffers, const std::vector<std::vector<UnnamedGroup>>& groups,
      std::uint64_t tensor_rank) const;

 private:
  const Layer* find(std::uint64_t number, std::uint64_t tensor_rank) const;
  const NamedTensor* find_parameter(const std::string& name, std::uint64_t elements, std::uint64_t tensor_rank,
                                    const std::set<std::uint64_t>& numbered) const;

  const Tag* tag_ = nullptr;
  std::uint64_t tensor_ranks_ = 1;
  std::vector<Layer> layers_{};  // by number, then by tensor-parallel rank
};

/// "3.weight" as 3 and "weight"; nothing for other names.
std::optional<std::pair<std::uint64_t, std::string_view>> split_layer_name(std::string_view name);

}  // namespace ckpt::deepspeed
