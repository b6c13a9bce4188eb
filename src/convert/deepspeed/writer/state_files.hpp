#pragma once

#include <cstdint>
#include <vector>

#include "convert/deepspeed/writer/expert_layout.hpp"
#include "convert/deepspeed/writer/training_target.hpp"

/// The files of a native directory, as DeepSpeed's engine writes them.
namespace ckpt::deepspeed {

/// The positions of stage 3's sub-groups in the groups.
struct SubGroup {
  std::size_t group = 0;
  std::size_t begin = 0;  ///< members [begin, end) of the group
  std::size_t end = 0;
};
/// source  deepspeed/runtime/zero/stage3.py: _create_fp16_sub_groups
Result<std::vector<SubGroup>> sub_groups_of(const TrainingTarget& target);

/// Members of a rank's group in the order of its flat tensor (stages 1 and 2).
std::vector<std::size_t> flat_order(const TrainingTarget& target, const GroupShare& share);

/// mp_rank_00_model_states.pt; of stage 3 the file of one rank.
///
/// source  deepspeed/runtime/engine.py: _save_checkpoint
Result<TargetFile> model_file(const TrainingTarget& target, std::uint64_t rank, std::string path,
                              const std::string& id);

/// layer_NN-model_TT-model_states.pt: the tensors of a layer of a pipeline.
///
/// request  of the whole source (not of a rank)
Result<TargetFile> layer_file(const WriteRequest& request, const HeldLayer& layer, std::string path);

/// layer_L_expert_E_mp_rank_00_model_states.pt: the weights of one expert, by its global number.
///
/// source  deepspeed/runtime/engine.py: _save_moe_checkpoint
Result<TargetFile> expert_file(const TrainingTarget& target, const ExpertLayer& layer, std::uint64_t expert,
                               std::string path, const std::string& id);

/// expp_rank_E_mp_rank_00_optim_states.pt: of stage 0, the optimizer of one expert-parallel rank.
Result<TargetFile> expert_optimizer_file(const TrainingTarget& target, std::uint64_t expert_rank, std::string path,
                                         const std::string& id);

/// One rank's optimizer file of stages 1 to 3.
///
/// source  deepspeed/runtime/zero/stage_1_and_2.py: state_dict; stage3.py: _rigid_state_dict
Result<TargetFile> optimizer_file(const TrainingTarget& target, std::uint64_t rank, std::string path,
                                  const std::string& id);

/// All files of a universal folder.
///
/// errors  unsupported: a parameter's name cannot be that of a folder
Result<std::vector<TargetFile>> universal_files(const TrainingTarget& target, const WriteRequest& request);

/// The optimizer's state dict of stage 0 as a data-parallel rank has it, which is in the model file: torch.optim's
/// own, or for 16-bit weights that of FP16_UnfusedOptimizer.
Result<ValuePtr> whole_optimizer(const TrainingTarget& target, std::uint64_t rank, StateArchive& archive);

/// A group's options as a dict, with its members' numbers last.
ValuePtr group_value(const TargetGroup& group, std::uint64_t first, std::uint64_t count);
/// The step in DeepSpeed's form, null if there is none.
ValuePtr step_value(StateArchive& archive, const TargetGroup& group);

/// A number of the optimizer's state: a tensor, as torch's optimizers keep them, if it is a float32; else as it is.
ValuePtr number_value(StateArchive& archive, const Value& number);
/// A LossScaler object; the source's own if it fits the weights' type.
ValuePtr loss_scaler(const TrainingTarget& target);
/// Whether a loss scale that changes is carried over: only then files of stages 1 and 2 hold an object of a class.
bool has_dynamic_scale(const TrainingTarget& target);

}  // namespace ckpt::deepspeed
