#include "convert/torch/optimizer_form.hpp"

#include <memory>
#include <optional>
#include <string_view>
#include <unordered_set>

namespace ckpt::torch {
namespace {

ValuePtr value_of(Value value) {
  return std::make_shared<const Value>(std::move(value));
}

ValuePtr find_in(const Dict& dict, std::string_view key) {
  for (const auto& [name, value] : dict.items) {
    const auto* text = name == nullptr ? nullptr : std::get_if<std::string>(&name->v);
    if (text != nullptr && *text == key) return value;
  }
  return nullptr;
}

/// The dicts of a list of dicts.
std::vector<const Dict*> dicts_of(const ValuePtr& value) {
  std::vector<const Dict*> out;
  const auto* list = value == nullptr ? nullptr : std::get_if<List>(&value->v);
  if (list == nullptr) return out;
  for (const ValuePtr& item : list->items) {
    if (const auto* dict = item == nullptr ? nullptr : std::get_if<Dict>(&item->v)) out.push_back(dict);
  }
  return out;
}

class OptimizerForm {
 public:
  explicit OptimizerForm(const NamedOptimizer& source) : source_(source) {}

  Dict build(std::size_t& groupless) {
    List groups;
    for (const Dict* group : dicts_of(source_.groups)) groups.items.push_back(add_group(*group));
    const std::size_t grouped = index_.size();
    List rest;
    List rest_names;
    for (const NamedOptimizer::Slot& slot : source_.slots) {
      if (index_.contains(slot.parameter)) continue;
      add_member(slot.parameter, rest, rest_names);
    }
    groupless = index_.size() - grouped;
    if (groupless > 0) {
      Dict group;
      finish_group(group, std::move(rest), std::move(rest_names));
      groups.items.push_back(value_of({std::move(group)}));
    }
    add_numbers();
    for (const NamedOptimizer::Slot& slot : source_.slots) {
      const auto parameter = static_cast<std::size_t>(index_.at(slot.parameter));
      states_[parameter].items.emplace_back(value_of({slot.slot}), slot.value);
    }
    Dict state;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (!states_[i].items.empty())
        state.items.emplace_back(value_of({static_cast<std::int64_t>(i)}), value_of({std::move(states_[i])}));
    }
    Dict out;
    out.items.emplace_back(value_of({std::string("state")}), value_of({std::move(state)}));
    out.items.emplace_back(value_of({std::string("param_groups")}), value_of({std::move(groups)}));
    return out;
  }

 private:
  void add_member(const std::string& parameter, List& params, List& names) {
    const auto index = static_cast<std::int64_t>(states_.size());
    if (!index_.emplace(parameter, index).second) return;  // a parameter is in one group
    states_.emplace_back();
    params.items.push_back(value_of({index}));
    if (numbered_.contains(parameter)) return;
    const auto renamed = source_.renamed.find(parameter);
    names.items.push_back(value_of({renamed == source_.renamed.end() ? parameter : renamed->second}));
  }

  static void finish_group(Dict& group, List params, List names) {
    const bool no_members = params.items.empty();
    group.items.emplace_back(value_of({std::string("params")}), value_of({std::move(params)}));
    if (!names.items.empty() || no_members)
      group.items.emplace_back(value_of({std::string("param_names")}), value_of({std::move(names)}));
  }

  ValuePtr add_group(const Dict& group) {
    Dict out;
    List params;
    List names;
    for (const auto& [key, value] : group.items) {
      const auto* text = key == nullptr ? nullptr : std::get_if<std::string>(&key->v);
      const bool is_members = text != nullptr && (*text == "params" || *text == "param_names");
      if (!is_members) out.items.emplace_back(key, value);
    }
    for (const std::string& name : members_of(group)) add_member(name, params, names);
    finish_group(out, std::move(params), std::move(names));
    return value_of({std::move(out)});
  }

  std::vector<std::string> members_of(const Dict& group) {
    std::vector<std::string> out;
    const ValuePtr params = find_in(group, "params");
    const auto* list = params == nullptr ? nullptr : std::get_if<List>(&params->v);
    if (list == nullptr) return out;
    for (const ValuePtr& item : list->items) {
      if (item == nullptr) continue;
      if (const auto* name = std::get_if<std::string>(&item->v)) out.push_back(*name);
      if (const auto* number = std::get_if<std::int64_t>(&item->v))
        numbered_.insert(out.emplace_back(std::to_string(*number)));
    }
    return out;
  }

  /// If several parameters share a number, mostly the step, each gets it, before its other slots as in torch.
  void add_numbers() {
    std::unordered_map<std::string_view, std::unordered_set<std::string_view>> own;
    for (const NamedOptimizer::Slot& slot : source_.slots) own[slot.parameter].insert(slot.slot);
    for (const Dict* group : dicts_of(source_.group_state)) {
      for (const std::string& name : members_of(*group)) {
        const auto index = index_.find(name);
        const auto slots = own.find(name);
        if (index == index_.end() || slots == own.end()) continue;
        for (const auto& [key, value] : group->items) {
          const auto* slot = key == nullptr ? nullptr : std::get_if<std::string>(&key->v);
          if (slot == nullptr || *slot == "params" || *slot == "param_names" || !slots->second.insert(*slot).second)
            continue;
          states_[static_cast<std::size_t>(index->second)].items.emplace_back(key, value);
        }
      }
    }
  }

  const NamedOptimizer& source_;
  std::unordered_map<std::string, std::int64_t> index_;  // of parameters
  std::vector<Dict> states_;                             // by index
  std::unordered_set<std::string> numbered_;             // parameters that have no other name
};

}  // namespace

Dict torch_optimizer(const NamedOptimizer& optimizer, std::size_t& groupless) {
  return OptimizerForm(optimizer).build(groupless);
}

}  // namespace ckpt::torch
