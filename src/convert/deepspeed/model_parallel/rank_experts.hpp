#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/deepspeed/files/model_parallel_files.hpp"
#include "convert/deepspeed/stages/experts.hpp"

namespace ckpt::deepspeed {

/// How tensor-parallel ranks have experts. Only the names of the files show it.
/// source   deepspeed/utils/groups.py: _create_expert_data_and_model_parallel (slices),
///          _create_expert_and_data_parallel (whole)
enum class ExpertCut : std::uint8_t {
  slices,  ///< each has a slice of every expert: enable_expert_tensor_parallelism
  whole,   ///< each has experts of its own: the expert-parallel ranks run across the tensor-parallel ones
};

/// The experts that one model-parallel rank has, and the files with them.
class RankExperts {
 public:
  /// model_rank  of `tensor_ranks` ones in each stage
  /// counts      num_experts of its stage: the experts of each layer
  RankExperts(const ModelParallelFiles& files, std::uint64_t model_rank, std::uint64_t tensor_ranks,
              const std::vector<std::uint64_t>& counts);

  ExpertCut cut() const { return cut_; }
  const ExpertShare& share() const { return share_; }
  const ExpertFiles& files() const { return files_; }
  /// Of stage 0: the optimizers of the rank's expert-parallel ranks, numbered among those of all.
  const std::vector<RankFile>& optims() const { return optims_; }
  /// Of stage 0, by the files: expert-parallel ranks of all tensor-parallel ranks.
  std::uint64_t expert_ranks() const { return expert_ranks_; }
  /// Of the group with most of them.
  /// model  of this rank
  std::uint64_t most_expert_ranks(const ModelStates& model) const;

  /// whole_optimizer  of stage 0: `optims` are checked too
  /// errors   incomplete, with the file: one is missing; corrupt: one that no rank of this save has written
  Result<> check_files(const Tag& tag, bool whole_optimizer) const;
  /// errors   unsupported: no DeepSpeed target can be written that keeps the layout of these ranks
  /// file     the rank's model file
  Result<> check_apart(const StateFile& file, bool whole_optimizer) const;

 private:
  std::string missing(bool whole_optimizer) const;
  std::string surplus(bool whole_optimizer) const;
  bool has(std::uint64_t layer, std::uint64_t expert) const;

  std::uint64_t model_rank_;
  std::vector<std::uint64_t> counts_;
  std::vector<std::uint64_t> local_counts_{};  // of each layer, if experts are whole: those of an expert-parallel rank
  ExpertCut cut_ = ExpertCut::slices;
  bool beside_layers_ = false;  // stages without experts have layer files
  ExpertShare share_{};
  ExpertFiles files_{};
  std::vector<RankFile> optims_{};
  std::uint64_t expert_ranks_ = 1;
};

}  // namespace ckpt::deepspeed
