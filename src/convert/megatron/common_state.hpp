#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/write_request.hpp"
#include "format/model/value.hpp"
#include "format/result.hpp"

namespace ckpt::megatron {

inline constexpr std::string_view kItem = "/shard_";  ///< in the names of objects that are items of data files
inline constexpr std::string_view kExtraState = "._extra_state/";     ///< likewise, of modules
inline constexpr std::string_view kLossScale = ".grad_scaler.scale";  ///< ends the name of a tensor of that state
inline constexpr std::string_view kCommonFile = "common.pt";          ///< to megatron-core 0.18; later ones read it too
inline constexpr std::string_view kCommonItem = "common_state/shard_0_1";  ///< since 0.19

/// What a target's common state depends on.
struct CommonParts {
  bool has_optimizer = false;          ///< masters and moments by weight
  bool has_random_states = false;      ///< items of the target
  bool has_rerun_states = false;       ///< likewise
  bool has_buckets = false;            ///< optimizer state that keeps its form: dp_reshardable
  std::optional<double> step{};        ///< of the optimizer, where it is stored by weight
  std::vector<std::string> tensors{};  ///< of the source that the common state holds
  /// For files of ranks: each has the optimizer's state in a form of its own.
  bool is_by_rank = false;
  std::vector<std::pair<std::string, ValuePtr>> arguments{};  ///< of the run, that the target changes

  std::string_view form() const { return is_by_rank ? "files of ranks" : "torch_dist"; }  ///< for people
};

/// The state that all ranks have in common, in the form of common.pt.
struct CommonState {
  ValuePtr value{};
  std::vector<ValuePtr> optimizers{};  ///< of files of ranks: each without the state of its weights
  std::optional<double> step{};        ///< likewise: of the optimizer, where it is stored with each weight
  bool is_distributed = true;          ///< for the distributed optimizer: it has other names for the masters
  std::vector<Finding> notes{};        ///< what is left out, by name
};

/// Whether a run of Megatron-LM saved it, perhaps in another format since: other optimizers' state lacks the parameter
/// groups by which Megatron-LM loads it.
bool is_of_megatron(const Map& map);

/// The arguments of the run, which a target needs whatever is selected; null if the source has none.
const NamedObject* run_arguments(const WriteRequest& request);

/// From the request's objects: `args`, `iteration`, the parameter groups, the scheduler, and what else a run of Megatron-LM
/// has. `args` tells that random states or the optimizer were not saved where the target has none, so that they are not
/// looked for. Arguments that are objects of Megatron-LM's classes are left out: other releases refuse them. The
/// optimizer is described as fully reshardable, or is apart for files of ranks.
///
/// errors  unsupported: a value of a class that no pickle can express
/// source  megatron/training/checkpointing.py: generate_state_dict, load_checkpoint;
///         megatron/core/optimizer/distrib_optimizer.py: state_dict, load_state_dict; optimizer.py: FP32Optimizer,
///         Float16OptimizerWithFloat16Params: sharded_state_dict
Result<CommonState> common_state(const WriteRequest& request, const CommonParts& parts);

}  // namespace ckpt::megatron
