#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "convert/deepspeed/files/state_file.hpp"

namespace ckpt::deepspeed {

struct NamedShape {
  std::string name;
  Shape shape;
  std::uint64_t elements = 0;
};
/// The parameters of one flat group (stages 1 and 2) or sub-group (stage 3), in flat order.
using GroupShapes = std::vector<NamedShape>;

struct NamedTensor {
  std::string name;
  FileTensor tensor;
};

/// Facts about the run in a *_model_states.pt, equal in every rank's file.
struct RunFacts {
  std::optional<std::uint64_t> global_steps{};
  std::optional<std::uint64_t> skipped_steps{};
  std::optional<std::uint64_t> data_parallel{};   ///< dp_world_size: sequence x data parallel
  std::optional<std::uint64_t> model_parallel{};  ///< mp_world_size: tensor x pipeline parallel
  std::uint64_t tensor_parallel = 1;
  std::uint64_t pipeline_parallel = 1;
  std::string version{};
  bool round_robin = false;          ///< ds_config: round_robin_gradients
  bool data_before_experts = false;  ///< ds_config: use_data_before_expert_parallelism
  std::string_view optim_prefix{};   ///< of optimizer file names, by ds_config: "bf16_" or ""
  bool operator==(const RunFacts&) const = default;
};

/// A flat group of experts. Each expert-parallel rank has its own experts, which all ranks' files name the same, by
/// local numbers.
struct ExpertGroup {
  GroupShapes stored{};          ///< of one expert-parallel rank, by local numbers
  std::uint64_t rank_count = 1;  ///< expert-parallel ranks of the model-parallel rank
};

/// The facts of one *_model_states.pt; holds no graph.
struct ModelStates {
  std::string path{};
  RunFacts facts{};
  std::vector<NamedTensor> module{};  ///< in order; stage 3: placeholders of 0 elements
  std::vector<std::pair<std::string, pickle::NodeId>> module_objects{};  ///< entries of `module` that are not tensors
  std::unordered_set<std::string> buffer_names{};
  std::optional<std::vector<GroupShapes>> param_shapes{};  ///< absent in stage 0
  std::vector<NamedShape> frozen{};
  std::vector<NamedTensor> frozen_fragments{};  ///< stages <= 2: whole tensors; stage 3: this rank's padded part
  std::vector<std::uint64_t> num_experts{};     ///< for each mixture-of-experts layer; empty if there is none
  /// By number of the group; filled by add_experts(), after which param_shapes names the experts of all expert-parallel
  /// ranks, one rank after another.
  std::map<std::size_t, ExpertGroup> expert_groups{};
  std::map<std::string, std::uint64_t, std::less<>>
      layer_experts{};                                        ///< num_experts by ExpertName::layer; filled likewise
  std::vector<std::pair<std::string, std::string>> shared{};  ///< tied name -> the name that holds the data
};

/// Takes the facts of a model file.
/// errors   corrupt: not such a file, or members that contradict each other; unsupported, by name: AutoEP; incomplete:
///          one of several model-parallel ranks, with ModelRanks::one
enum class ModelRanks : std::uint8_t { one, several };  ///< several: a slice, or a stage, whose `module` may be absent
Result<ModelStates> read_model_states(const StateFile& file, ModelRanks ranks = ModelRanks::one);

/// For readers of layouts in which DeepSpeed writes no mixture of experts.
/// errors  unsupported: it is one
Result<> refuse_experts(const StateFile& file, const ModelStates& model);

/// Only frozen fragments: these are what the model files of further stage-3 ranks add.
Result<std::vector<NamedTensor>> read_fragments(const StateFile& file);
Result<RunFacts> read_facts(const StateFile& file);
/// errors   corrupt, with both: `file` is of another step than rank 0's
Result<> check_same_steps(const StateFile& file, const RunFacts& facts, const RunFacts& of_rank_0);

/// Keys of a model file that say how the rest is laid out; every other key is kept as an object.
bool is_layout_key(std::string_view key);

}  // namespace ckpt::deepspeed
