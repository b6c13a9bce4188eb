#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/state_archive.hpp"
#include "convert/write_request.hpp"
#include "format/model/training_state.hpp"

/// The requirements of a DeepSpeed target, checked against the source.
namespace ckpt::deepspeed {

/// The DeepSpeed release whose layout is written, for files of a source that names none.
constexpr std::string_view kWrittenVersion = "0.19.6";
constexpr std::uint64_t kDefaultSubGroupElements = 1'000'000'000;  // zero/config.py: sub_group_size

/// A flat slot of a group: the same for all its members.
struct GroupSlot {
  std::string name;
  Dtype dtype = Dtype::f32;
};

/// A parameter group of the target.
struct TargetGroup {
  std::vector<std::pair<std::string, Value>> options{};
  std::vector<std::size_t> members{};     ///< indices into TrainingState::model, in the optimizer's order
  std::vector<std::uint64_t> elements{};  ///< of the members
  std::vector<GroupSlot> slots{};
  std::optional<Value> step{};  ///< int64, or double if the source has a tensor; none: the optimizer counts none
  std::vector<std::pair<std::string, Value>> values{};  ///< other numbers that the members share (NAdam's mu_product)
  std::uint64_t expert_ranks = 0;                       ///< of a group of experts: expert-parallel ranks; else 0
};

/// A mixture-of-experts layer.
struct ExpertLayer {
  std::string name{};        ///< what names of its experts begin with, up to their numbers
  std::uint64_t number = 0;  ///< in the order of the module
  std::uint64_t experts = 0;
  std::uint64_t ranks = 1;                          ///< expert-parallel ranks
  std::vector<std::vector<std::size_t>> members{};  ///< of each expert: indices into TrainingState::model
};

struct TrainingTarget {
  TrainingState state{};
  std::vector<TargetGroup> groups{};
  std::unordered_map<std::string, std::uint32_t> by_name{};  ///< tensors of the map
  std::uint64_t stage = 0;
  bool has_bare_tensors =
      false;  ///< of a universal directory: its files are as stage 3 before DeepSpeed 0.19 reads them
  std::uint64_t dp = 1;
  std::uint64_t model_rank = 0;    ///< the model-parallel rank that this is of
  std::uint64_t model_ranks = 1;   ///< tensor-parallel ranks x pipeline stages
  std::uint64_t tensor_ranks = 1;  ///< of a stage
  bool layer_files = false;        ///< weights are in files of a pipeline's layers
  std::string tag{};
  std::vector<ExpertLayer> experts{};
  std::map<std::string, std::size_t, std::less<>> expert_at{};  ///< ExpertLayer::name -> index of `experts`
  bool data_before_experts = false;  ///< the mesh: ranks with the same experts lie side by side
  Dtype model_dtype = Dtype::f32;
  bool fresh = false;        ///< no optimizer state is carried over
  bool round_robin = false;  ///< the run sets round_robin_gradients
  std::uint64_t sub_group_elements = kDefaultSubGroupElements;
  std::string version{};
  ValuePtr config{};                                          ///< "ds_config"
  std::vector<std::pair<std::string, ValuePtr>> client{};     ///< client state: top-level keys of model files
  std::vector<std::pair<std::string, ValuePtr>> optimizer{};  ///< "overflow", "clip_grad" of the source's optimizer
  std::vector<Finding> notes{};

  /// The source's universal_checkpoint_info, that of the first stage of a pipeline; null if there is none.
  const Value* slice_info() const;
  /// The tensor from which a parameter's weight is made: its master if the weight is cast, so that it is rounded once.
  std::uint32_t weight_source(const ModelTensor& entry) const;
  /// The tensor that a parameter's fp32 master is made of.
  std::uint32_t master_source(const ModelTensor& entry) const {
    return entry.master && !fresh ? *entry.master : *entry.tensor;
  }
  const Map* map = nullptr;
};

/// "OUT: convert: WHAT", unsupported.
Error cannot_hold(const WriteRequest& request, std::string what, std::string tensor = {}, std::string hint = {});

/// Native directories: what one model-parallel rank has.
///
/// request  of that rank alone (RankRequests)
/// errors  usage: --zero-stage or --dp is needed; unsupported: names the tensor or the layout that cannot be held, with
///         the nearest that works as a hint
Result<TrainingTarget> training_target(const WriteRequest& request, std::uint64_t model_rank);

/// The same for a universal directory, which has no stage and no ranks: stage 2 of one rank.
Result<TrainingTarget> universal_target(const WriteRequest& request);

}  // namespace ckpt::deepspeed
