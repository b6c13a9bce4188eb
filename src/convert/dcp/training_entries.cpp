#include "convert/dcp/training_entries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include "convert/apply_rules.hpp"
#include "convert/dcp_entries.hpp"
#include "convert/left_out.hpp"
#include "convert/target_tensors.hpp"
#include "format/model/object_tree.hpp"
#include "format/model/training_state.hpp"

namespace ckpt::dcp {
namespace {

const std::string kModelKey = "model";
const std::string kOptimizerKey = "optimizer";

Value text_value(std::string text) {
  Value out;
  out.v = std::move(text);
  return out;
}

/// Options that torch.optim.Adam and AdamW have and other implementations do not, with their defaults: dcp.load asks
/// for each option that the optimizer has. Of AdamW `decoupled_weight_decay` is true.
/// source  torch/optim/adam.py, adamw.py (2.7 and later)
std::vector<std::pair<std::string, Value>> adam_defaults() {
  std::vector<std::pair<std::string, Value>> out;
  const auto add = [&](std::string_view name, auto value) {
    Value held;
    held.v = value;
    out.emplace_back(name, std::move(held));
  };
  add("amsgrad", false);
  add("maximize", false);
  add("foreach", None{});
  add("capturable", false);
  add("differentiable", false);
  add("fused", None{});
  add("decoupled_weight_decay", true);
  return out;
}

class TrainingEntries {
 public:
  explicit TrainingEntries(const WriteRequest& request)
      : request_(request), map_(*request.source), names_(request), set_(request) {}

  Result<StateEntries> build() {
    std::vector<StateItem> items;
    const std::vector<bool> is_value = written_tensors(request_);
    for (std::size_t i = 0; i < request_.tensors.size(); ++i) {
      Tensor tensor = names_.tensor(i);
      if (!is_value[i]) streams_.insert(request_.tensors[i].tensor);
      items.push_back({request_.tensors[i].tensor, tensor.name, tensor.dtype, tensor.role});
    }
    state_ = training_state({.map = &map_, .items = items, .aliases = request_.aliases, .objects = request_.objects});
    if (!state_.unplaced_reason.empty()) return fail(unplaced());
    for (const ModelTensor& entry : state_.model) CKPT_CHECK(add_weight(entry, entry.name));
    CKPT_CHECK(add_ties());
    for (const ModelTensor& entry : state_.model) CKPT_CHECK(add_slots(entry));
    CKPT_CHECK(add_loose());
    CKPT_CHECK(add_groups());
    if (state_.scheduler) set_.add_value({std::string("lr_scheduler")}, *state_.scheduler);
    add_rest();
    StateEntries out{.entries = set_.take_entries(), .notes = std::move(state_.notes)};
    report(out.notes);
    return out;
  }

 private:
  Error unplaced() const {
    const std::string what = state_.unplaced.empty() ? std::string()
                                                     : fmt::format("cannot match {} optimizer tensors to parameters: ",
                                                                   state_.unplaced.size());
    return {
        .code = Errc::unsupported,
        .message = fmt::format("{}: {}{}", request_.target, what, state_.unplaced_reason),
        .tensor = state_.unplaced.empty() ? std::string() : map_.tensors[state_.unplaced.front()].name,
        .hint = state_.order_is_missing ? std::string(kListParameters) : "--only weights    converts the model only"};
  }

  Path path_of(const std::string& name, const Path& path) const {
    if (!path.empty()) return path;
    return map_.nested ? split_at_dots(name) : Path{name};
  }

  /// A tensor of the source, with the element type of the target.
  Result<> add(std::uint32_t index, Dtype dtype, Path path) {
    Tensor tensor = map_.tensors[index];
    if (tensor.dtype != dtype) tensor.true_dtype.clear();
    tensor.dtype = dtype;
    std::string key = dotted(path);
    return set_.add_tensor(index, tensor, std::move(key), std::move(path));
  }

  Result<> add_weight(const ModelTensor& entry, const std::string& name) {
    Path path{kModelKey, name};
    if (entry.tensor) return add(*entry.tensor, entry.dtype, std::move(path));
    if (!entry.master) return {};
    from_masters_.push_back(name);
    return add(*entry.master, map_.tensors[*entry.master].dtype, std::move(path));
  }

  Result<> add_ties() {
    std::unordered_map<std::string_view, const ModelTensor*> by_name;
    for (const ModelTensor& entry : state_.model) by_name.emplace(entry.name, &entry);
    for (const Alias& tie : state_.ties) {
      const auto entry = by_name.find(tie.target);
      if (entry != by_name.end()) CKPT_CHECK(add_weight(*entry->second, tie.name));
    }
    return {};
  }

  Result<> add_slots(const ModelTensor& entry) {
    const auto path = [&](const std::string& slot) {
      return Path{kOptimizerKey, std::string("state"), entry.name, slot};
    };
    if (entry.master && entry.tensor != entry.master && entry.tensor)
      masters_.push_back(map_.tensors[*entry.master].name);
    if (const auto* index = std::get_if<std::uint32_t>(&entry.step)) {
      CKPT_CHECK(set_.add_scalar(*index, map_.tensors[*index], path(std::string(kStepSlotName))));
    } else if (const auto* value = std::get_if<Value>(&entry.step)) {
      CKPT_CHECK(add_number(*value, path(std::string(kStepSlotName))));
    }
    for (const auto& [name, value] : entry.values) CKPT_CHECK(add_number(value, path(name)));
    for (const StateSlot& slot : entry.slots) {
      CKPT_CHECK(add(slot.tensor, map_.tensors[slot.tensor].dtype, path(slot.name)));
      is_adam_ = is_adam_ || slot.name == "exp_avg_sq";
    }
    return {};
  }

  Result<> add_number(const Value& value, Path path) {
    const auto number = real_number(&value);
    if (number) return set_.add_number(static_cast<float>(*number), std::move(path));
    set_.add_value(path, value);
    return {};
  }

  /// Tensors that are neither weights nor slots keep their names; pickle streams are not in a form that torch.load takes.
  Result<> add_loose() {
    for (const std::uint32_t index : state_.loose) {
      const Tensor& tensor = map_.tensors[index];
      if (streams_.contains(index)) {
        lost_blobs_.push_back(tensor.name);
      } else {
        CKPT_CHECK(set_.add_tensor(index, tensor, tensor.name, path_of(tensor.name, tensor.path)));
      }
    }
    return {};
  }

  Result<> add_groups() {
    if (!state_.has_optimizer) return {};
    std::unordered_map<std::string_view, std::uint32_t> by_name;
    for (std::uint32_t i = 0; i < map_.tensors.size(); ++i) by_name.emplace(map_.tensors[i].name, i);
    std::int64_t number = 0;
    for (const ParameterGroup& group : state_.groups) {
      const Path at{kOptimizerKey, std::string("param_groups"), number++};
      const auto add_option = [&](const std::string& name, const Value& value) {
        Path path = at;
        path.emplace_back(name);
        set_.add_value(path, value);
      };
      for (const auto& [name, value] : group.options) {
        const auto* ref = std::get_if<TensorRef>(&value.v);
        if (ref == nullptr) {
          add_option(name, value);
        } else if (const auto held = by_name.find(ref->name); held != by_name.end()) {
          Path path = at;
          path.emplace_back(name);
          CKPT_CHECK(add(held->second, map_.tensors[held->second].dtype, std::move(path)));
        }
      }
      if (is_adam_ && state_.has_group_options) {
        for (const auto& [name, value] : adam_defaults()) {
          if (std::ranges::find(group.options, name, &std::pair<std::string, Value>::first) != group.options.end())
            continue;
          add_option(name, value);
          if (std::ranges::find(defaults_, name) == defaults_.end()) defaults_.push_back(name);
        }
      }
      List members;
      for (const std::size_t member : group.members)
        members.items.push_back(std::make_shared<Value>(text_value(state_.model[member].name)));
      Value value;
      value.v = std::move(members);
      add_option("params", value);
    }
    return {};
  }

  void add_rest() {
    std::vector<TreeLeaf> leaves;
    for (const auto* objects : {&state_.rng, &state_.rest}) {
      for (const NamedObject& object : *objects) {
        const ValuePtr borrowed(&object.value, [](const Value*) {});
        leaves.push_back({path_of(object.name, object.path), borrowed});
      }
    }
    set_.add_leaves(leaves);
  }

  void report(std::vector<Finding>& notes) const {
    if (!from_masters_.empty())
      notes.push_back(
          {.text = fmt::format("{} weights are not stored in the source: their masters are used (first: {})",
                               from_masters_.size(), from_masters_.front())});
    add_left_out(notes, masters_, "fp32 master", "fp32 masters", "dcp");
    if (!masters_.empty())
      notes.push_back({.text = "--weights master    writes them as the weights, which FSDP keeps in fp32"});
    if (!defaults_.empty())
      notes.push_back({.text = fmt::format("param_groups: torch's defaults for options that the source lacks: {}",
                                           fmt::join(defaults_, ", "))});
    if (state_.loss_scale) notes.push_back({.text = "the loss scaler's state is left out: FSDP state dicts have none"});
    add_left_out(notes, lost_blobs_, "opaque blob", "opaque blobs", "dcp", Skipped::training_state);
    add_left_out(notes, set_.lost_objects(), "Python object", "Python objects", "dcp", Skipped::training_state);
  }

  const WriteRequest& request_;
  const Map& map_;
  const TargetTensors names_;
  TrainingState state_{};
  EntrySet set_;
  bool is_adam_ = false;
  std::vector<std::string> from_masters_{};
  std::vector<std::string> masters_{};
  std::vector<std::string> defaults_{};
  std::unordered_set<std::uint32_t> streams_{};  // tensors of the map: pickles, and what they refer to
  std::vector<std::string> lost_blobs_{};
};

}  // namespace

Result<StateEntries> training_entries(const WriteRequest& request) {
  return TrainingEntries(request).build();
}

}  // namespace ckpt::dcp
