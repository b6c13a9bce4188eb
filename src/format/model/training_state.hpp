#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "format/model/model.hpp"

/// Training state independent of any framework's files: the view between a source map and a target layout. A writer
/// gets parameters, groups and slots from it and need not know the form of the source.
///
/// Four forms of optimizer state are understood:
///   per name    optimizer.state.<parameter>.<slot>; groups list names (FSDP state dicts, DCP; DeepSpeed's flat
///               partitions too, which their reader maps so, with `optimizer.param_groups` and `optimizer.group_state`)
///   per index   <optimizer>.state.<number>.<slot>; groups list numbers (torch.optim in .pt files, Trainer, Lightning).
///               Numbers become names by `param_names` of the groups, else by order and shape (match_parameters) where
///               the map keeps the order of the modules or the user gives it (Map::parameter_order), else by shape,
///               and only where one answer fits
///   flattened   optimizer.param_groups.<parameter>.<option> (flatten_optimizer_state_dict): parameters with equal
///               options form one group
///   weights     no optimizer: every floating-point tensor that is not known as a buffer counts as trained
namespace ckpt {

constexpr std::string_view kMasterSlotName = "master";
constexpr std::string_view kStepSlotName = "step";

/// A tensor for a target: Selected of convert, without the parts that only convert needs.
struct StateItem {
  std::uint32_t tensor = 0;  ///< index into Map::tensors
  std::string name;          ///< in the target
  Dtype dtype = Dtype::f32;  ///< in the target
  Role role = Role::param;   ///< in the target
};

struct TrainingSource {
  const Map* map = nullptr;
  std::span<const StateItem> items{};      ///< in the map's order
  std::span<const Alias> aliases{};        ///< with names in the target
  std::span<const NamedObject> objects{};  ///< with names in the source
};

/// The location of a parameter's step counter.
using StepPlace = std::variant<std::monostate,  // the source has none
                               std::uint32_t,   // a tensor of one element, index into Map::tensors
                               Value>;          // a number, as the source has it: int64 or double

/// Optimizer state of one parameter besides master and step: "exp_avg", "exp_avg_sq", or the framework's own name.
struct StateSlot {
  std::string name;
  std::uint32_t tensor = 0;  ///< index into Map::tensors
};

/// A tensor of the model, as torch.nn.Module.state_dict() has it.
struct ModelTensor {
  enum class Kind : std::uint8_t {
    trained,  ///< the optimizer has state for it or lists it
    frozen,   ///< a parameter that is not trained
    buffer,
  };
  std::string name;                       ///< without the source's wrapper ("model.")
  std::optional<std::uint32_t> tensor{};  ///< the weight, index into Map::tensors; none: only a master is stored
  Dtype dtype = Dtype::f32;               ///< in the target
  Shape shape{};
  Kind kind = Kind::trained;
  bool kind_is_known = true;              ///< false: the source does not distinguish a frozen parameter from a buffer
  std::optional<std::uint32_t> master{};  ///< index into Map::tensors
  std::vector<StateSlot> slots{};         ///< in the source's order
  StepPlace step{};
  std::vector<std::pair<std::string, Value>> values{};  ///< other numbers that the optimizer keeps (NAdam's mu_product)
  std::optional<std::size_t> group{};                   ///< index into TrainingState::groups
};

/// One parameter group of the optimizer.
struct ParameterGroup {
  /// By torch.optim's names ("lr", "betas", "eps", "weight_decay", ...), in the source's order; never "params" or
  /// "param_names". `betas` is a tuple.
  /// A value may be a TensorRef, by the name in the map.
  std::vector<std::pair<std::string, Value>> options{};
  std::vector<std::size_t> members{};  ///< indices into TrainingState::model, in the optimizer's order
};

/// State of a loss scaler by common names; missing values have the frameworks' defaults.
struct LossScale {
  double scale = 1;
  bool dynamic = false;
  std::int64_t iteration = 0;       ///< DeepSpeed cur_iter
  std::int64_t last_overflow = -1;  ///< DeepSpeed last_overflow_iter; GradScaler: iteration - 1 - _growth_tracker
  double factor = 2;                ///< growth; shrinks by its inverse
  std::int64_t window = 1000;       ///< iterations without overflow before it grows
  std::optional<Value> original{};  ///< the source's own object, if it has one (an Opaque of DeepSpeed's class)
};

struct Counters {
  std::optional<std::int64_t> steps{};
  std::optional<std::int64_t> skipped_steps{};
  std::optional<std::int64_t> samples{};
  std::optional<std::int64_t> epoch{};
};

struct TrainingState {
  std::vector<ModelTensor> model{};  ///< in module order, as the source's state dict has it
  std::vector<Alias> ties{};         ///< a second name, and the name in `model` that it is
  std::vector<ParameterGroup> groups{};
  bool has_optimizer = false;      ///< there are slots, masters or groups
  bool has_group_options = false;  ///< groups come from the source, with their options
  /// The order of the model's parameters is needed, for the members of groups or for their numbers, and neither a file nor
  /// the user gives it, or what the user gives does not fit.
  bool order_is_missing = false;
  std::optional<LossScale> loss_scale{};
  std::optional<Value> scheduler{};  ///< state dict of the learning-rate scheduler
  Counters counters{};
  std::vector<NamedObject> rng{};   ///< random states, with their names in the source
  std::vector<NamedObject> rest{};  ///< all other objects, with their names in the source
  /// Tensors that are none of the above (of objects, blobs), of Map::tensors; no blobs that objects were read from.
  std::vector<std::uint32_t> loose{};
  /// Optimizer state whose parameter is not known, of Map::tensors, and why: a target that needs all must refuse. A
  /// reason alone: the members of the groups are not known, and there is no state of theirs (SGD).
  std::vector<std::uint32_t> unplaced{};
  std::string unplaced_reason{};
  std::string wrapper{};         ///< prefixes removed from names: "model.", "pytorch_model.bin/"
  std::vector<Finding> notes{};  ///< decisions that a user must know of
};

/// Pure; reads nothing. Never fails on content: state that is not understood is in `rest`, `loose` or `unplaced`.
TrainingState training_state(const TrainingSource& source);

/// All tensors and objects of a map under their own names: the input of training_state.
std::vector<StateItem> all_items(const Map& map);

}  // namespace ckpt
