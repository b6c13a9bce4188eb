#include "convert/torch/written_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>

#include "convert/left_out.hpp"
#include "convert/target_tensors.hpp"
#include "convert/torch/optimizer_form.hpp"
#include "format/model/training_groups.hpp"
#include "format/text/name_list.hpp"
#include "format/torch/value_pickle.hpp"

namespace ckpt::torch {
namespace {

ValuePtr boxed(Value value) {
  return std::make_shared<const Value>(std::move(value));
}

ValuePtr key_of(const PathPart& part) {
  if (const auto* index = std::get_if<std::int64_t>(&part)) return boxed({*index});
  return boxed({std::get<std::string>(part)});
}

/// Nested state, built from paths.
class Nest {
 public:
  /// False if a value is in the way, or at the end.
  bool add(const Path& path, ValuePtr value) {
    Branch* at = &root_;
    for (const PathPart& part : path) {
      if (at->leaf != nullptr) return false;
      const auto [known, is_new] = at->known.emplace(part, at->parts.size());
      if (is_new) at->parts.emplace_back(part, std::make_unique<Branch>());
      at = at->parts[known->second].second.get();
    }
    if (at->leaf != nullptr || !at->parts.empty()) return false;
    at->leaf = std::move(value);
    return true;
  }

  ValuePtr finish() { return finish(root_, false); }

 private:
  struct Branch {
    ValuePtr leaf{};
    std::vector<std::pair<PathPart, std::unique_ptr<Branch>>> parts{};
    std::map<PathPart, std::size_t> known{};
    bool has(std::string_view key) const { return known.contains(PathPart(std::string(key))); }
  };

  /// A container whose keys are 0, 1, ... is a list, but for the state of an optimizer, which torch keeps by number.
  static ValuePtr finish(Branch& branch, bool is_optimizer_state) {
    if (branch.leaf != nullptr) return std::move(branch.leaf);
    bool is_list = !is_optimizer_state && !branch.parts.empty();
    for (std::size_t i = 0; i < branch.parts.size() && is_list; ++i)
      is_list = branch.known.contains(PathPart(static_cast<std::int64_t>(i)));
    if (is_list) {
      List list;
      for (std::size_t i = 0; i < branch.parts.size(); ++i) {
        const std::size_t at = branch.known.at(PathPart(static_cast<std::int64_t>(i)));
        list.items.push_back(finish(*branch.parts[at].second, false));
      }
      return boxed({std::move(list)});
    }
    const bool is_optimizer = branch.has("state") && branch.has("param_groups");
    Dict dict;
    for (auto& [part, below] : branch.parts) {
      ValuePtr value = finish(*below, is_optimizer && part == PathPart("state"));
      if (const auto* name = std::get_if<std::string>(&part)) value = boxed(as_group_option(*name, *value));
      // Versions of layers in a module's state dict: an attribute of the dict, not an entry.
      if (part == PathPart("_metadata") && std::holds_alternative<Dict>(value->v)) {
        Dict attributes;
        attributes.items.emplace_back(key_of(part), std::move(value));
        dict.kind = Dict::Kind::ordered;
        dict.attributes = boxed({std::move(attributes)});
      } else {
        dict.items.emplace_back(key_of(part), std::move(value));
      }
    }
    return boxed({std::move(dict)});
  }

  Branch root_;
};

/// A value in the words that torch.load(weights_only=True) knows: an object becomes the dict of its attributes.
class Plain {
 public:
  /// Classes whose objects became dicts.
  std::unordered_set<std::string> unclassed{};

  ValuePtr of(const ValuePtr& value) {
    if (value == nullptr) return nullptr;
    if (const auto* list = std::get_if<List>(&value->v)) {
      List out{.kind = list->kind, .is_special = list->is_special && list->kind == List::Kind::tuple};
      for (const ValuePtr& item : list->items) out.items.push_back(of(item));
      return boxed({std::move(out)});
    }
    if (const auto* dict = std::get_if<Dict>(&value->v)) {
      Dict out{.kind = dict->kind == Dict::Kind::with_default ? Dict::Kind::plain : dict->kind};
      for (const auto& [key, held] : dict->items) out.items.emplace_back(of(key), of(held));
      if (out.kind == Dict::Kind::ordered) out.attributes = of(dict->attributes);
      return boxed({std::move(out)});
    }
    const auto* object = std::get_if<Opaque>(&value->v);
    if (object == nullptr || unwritable_classes(value, Loadable::weights_only).empty()) return value;
    const auto* arguments = object->args == nullptr ? nullptr : std::get_if<List>(&object->args->v);
    const bool is_all_state = arguments != nullptr && arguments->items.empty() && !object->has_items &&
                              object->state != nullptr && std::holds_alternative<Dict>(object->state->v);
    if (!is_all_state) return value;
    unclassed.insert(object->global);
    return of(object->state);
  }
};

class StateBuilder {
 public:
  StateBuilder(const WriteRequest& request, RandomStates random_states)
      : request_(request),
        names_(request),
        map_(*request.source),
        written_(written_tensors(request)),
        random_states_(random_states) {}

  Result<WrittenState> build() {
    if (map_.whole && is_complete() && !request_.only_weights) return whole();
    if (is_only_weights()) {
      std::vector<std::uint32_t> all;
      for (std::uint32_t i = 0; i < request_.tensors.size(); ++i) {
        if (written_[i]) all.push_back(i);
      }
      out_.value = state_dict(request_, all);
      return std::move(out_);
    }
    map_.nested ? add_nested() : add_by_kind();
    return nested_state();
  }

 private:
  const Tensor& source(std::size_t selected) const { return map_.tensors[request_.tensors[selected].tensor]; }
  Role role_of(std::size_t selected) const { return request_.tensors[selected].role.value_or(source(selected).role); }

  /// All of the source, under the names that it has there.
  bool is_complete() const {
    if (request_.tensors.size() != map_.tensors.size() || request_.objects.size() != map_.objects.size()) return false;
    for (std::size_t i = 0; i < request_.tensors.size(); ++i) {
      if (request_.tensors[i].name != source(i).name || request_.tensors[i].role) return false;
    }
    return true;
  }

  bool is_only_weights() const {
    if (!request_.objects.empty()) return false;
    for (std::size_t i = 0; i < request_.tensors.size(); ++i) {
      const bool is_weight = role_of(i) == Role::param || role_of(i) == Role::buffer;
      if (!is_weight && written_[i]) return false;
    }
    return request_.only_weights || !map_.nested || !is_complete();
  }

  Result<WrittenState> whole() {
    CKPT_TRY(WholeObject object, map_.whole());
    const std::vector<std::string> unwritable = unwritable_classes(object.value, Loadable::anyhow);
    if (!unwritable.empty()) {
      add_nested();
      return nested_state();
    }
    out_.value = std::move(object.value);
    out_.storages = std::move(object.storages);
    return std::move(out_);
  }

  Result<WrittenState> nested_state() {
    if (!without_place_.empty())
      return fail({.code = Errc::unsupported,
                   .message = fmt::format("{}: '{}' and another value would have the same key in a torch file",
                                          request_.target, without_place_),
                   .tensor = without_place_,
                   .hint = "--map FILE    renames tensors"});
    out_.value = nest_.finish();
    report();
    return std::move(out_);
  }

  void place(const Path& path, const std::string& name, ValuePtr value) {
    if (!nest_.add(path, std::move(value)) && without_place_.empty()) without_place_ = name;
  }

  void add(const Path& path, const std::string& name, ValuePtr value) {
    if (!nest_.add(path, value)) place({name}, name, std::move(value));
  }

  static ValuePtr tensor_ref(const std::string& name) { return boxed({TensorRef{.name = name}}); }

  static Path full_path(const std::string& name, const Path& path) { return path.empty() ? split_at_dots(name) : path; }

  Path path_of(std::size_t selected) const {
    const Tensor& tensor = source(selected);
    return renamed_path(full_path(tensor.name, tensor.path), tensor.name, request_.tensors[selected].name);
  }

  void add_nested() {
    for (std::uint32_t i = 0; i < request_.tensors.size(); ++i) {
      if (written_[i]) add(path_of(i), request_.tensors[i].name, tensor_ref(request_.tensors[i].name));
    }
    for (const Alias& alias : request_.aliases)
      add(full_path(alias.name, alias.path), alias.name, tensor_ref(alias.target));
    for (const NamedObject& object : request_.objects) add_object(object);
  }

  /// Sources whose names are flat: the model, the optimizer, and the rest.
  void add_by_kind() {
    std::vector<std::uint32_t> weights;
    std::vector<std::uint32_t> loose;
    NamedOptimizer optimizer{.renamed = names_.renamed()};
    // A torch.optim state dict that was a separate file beside the weights.
    const bool nests_optimizer = std::ranges::any_of(request_.objects, [](const NamedObject& object) {
      const Path path = full_path(object.name, object.path);
      return path.size() > 3 && path[0] == PathPart("optimizer") && path[1] == PathPart("param_groups");
    });
    std::unordered_map<std::string, std::string> old_names;  // by those in the target
    for (const auto& [before, after] : names_.renamed()) old_names.emplace(after, before);
    for (std::uint32_t i = 0; i < request_.tensors.size(); ++i) {
      const Tensor tensor = names_.tensor(i);
      const bool is_slot = tensor.role == Role::slot && !tensor.parameter.empty() && !nests_optimizer;
      if (tensor.role == Role::param || tensor.role == Role::buffer) {
        weights.push_back(i);
      } else if (is_slot && tensor.slot == "master") {
        place({"master_weights", tensor.parameter}, tensor.name, tensor_ref(tensor.name));
      } else if (is_slot) {
        const auto old = old_names.find(tensor.parameter);
        optimizer.slots.push_back(
            {old == old_names.end() ? tensor.parameter : old->second, tensor.slot, tensor_ref(tensor.name)});
      } else if (auto key = nests_optimizer ? std::nullopt : state_key(path_of(i))) {
        optimizer.slots.push_back({std::move(key->first), std::move(key->second), tensor_ref(tensor.name)});
      } else if (written_[i]) {
        loose.push_back(i);
      }
    }
    if (!weights.empty()) place({"model"}, "model", state_dict(request_, weights));
    for (const NamedObject& object : request_.objects) {
      if (object.name == "optimizer.param_groups") optimizer.groups = checked(object);
      if (object.name == "optimizer.group_state") optimizer.group_state = checked(object);
      if (auto key = nests_optimizer ? std::nullopt : state_key(full_path(object.name, object.path))) {
        if (ValuePtr value = checked(object))
          optimizer.slots.push_back({std::move(key->first), std::move(key->second), std::move(value)});
      }
    }
    if (!optimizer.slots.empty() || optimizer.groups != nullptr) {
      std::size_t groupless = 0;
      for (auto& [key, value] : torch_optimizer(optimizer, groupless).items)
        if (!nest_.add({"optimizer", std::get<std::string>(key->v)}, value))
          leave_out("optimizer." + std::get<std::string>(key->v));
      if (groupless > 0)
        out_.dropped.push_back(
            {.text = fmt::format("optimizer: {} parameters are not in any parameter group of the source; "
                                 "their group has no hyperparameters",
                                 groupless)});
    }
    for (const NamedObject& object : request_.objects) {
      const bool is_done = object.name == "optimizer.param_groups" ||
                           (!nests_optimizer && state_key(full_path(object.name, object.path)));
      if (!is_done) add_object(object);
    }
    add_refs(optimizer.groups);
    for (const std::uint32_t i : loose) {
      const std::string& name = request_.tensors[i].name;
      if (!in_objects_.contains(name)) add(path_of(i), name, tensor_ref(name));
    }
  }

  /// The tensors in an object that is written.
  void add_refs(const ValuePtr& value) {
    if (value == nullptr || !seen_.insert(value.get()).second) return;
    if (const auto* ref = std::get_if<TensorRef>(&value->v)) in_objects_.insert(ref->name);
    if (const auto* list = std::get_if<List>(&value->v)) {
      for (const ValuePtr& item : list->items) add_refs(item);
    }
    if (const auto* dict = std::get_if<Dict>(&value->v)) {
      for (const auto& [key, held] : dict->items) add_refs(held);
    }
    if (const auto* object = std::get_if<Opaque>(&value->v)) {
      add_refs(object->args);
      add_refs(object->state);
    }
  }

  /// The parameter and the slot of optimizer state named "optimizer.state.PARAMETER.SLOT".
  static std::optional<std::pair<std::string, std::string>> state_key(const Path& path) {
    if (path.size() < 4 || path[0] != PathPart("optimizer") || path[1] != PathPart("state")) return std::nullopt;
    return std::pair(dotted(Path(path.begin() + 2, path.end() - 1)), part_text(path.back()));
  }

  void add_object(const NamedObject& object) {
    ValuePtr value = checked(object);
    if (value == nullptr) return;
    if (nest_.add(full_path(object.name, object.path), value) || nest_.add({object.name}, value)) {
      add_refs(value);
    } else {
      leave_out(object.name);
    }
  }

  /// Null if it is left out, which is noted once.
  ValuePtr checked(const NamedObject& object) {
    const bool is_random = object.name.starts_with("rng_state") || object.name.starts_with("random_states");
    const bool is_own = map_.format == "torch" || (is_random && random_states_ == RandomStates::apart);
    ValuePtr value = boxed(object.value);
    if (!is_own) value = plain_.of(value);
    if (unwritable_classes(value, is_own ? Loadable::anyhow : Loadable::weights_only).empty()) return value;
    leave_out(object.name);
    return nullptr;
  }

  void leave_out(const std::string& name) {
    if (known_unwritten_.insert(name).second) unwritten_.push_back(name);
  }

  void report() {
    if (!plain_.unclassed.empty()) {
      std::vector<std::string> classes(plain_.unclassed.begin(), plain_.unclassed.end());
      std::ranges::sort(classes);
      std::string text = "objects are written as dicts of their attributes, so that weights_only=True loads them: ";
      for (std::size_t i = 0; i < classes.size(); ++i) text += (i == 0 ? "" : ", ") + classes[i];
      out_.dropped.push_back({.text = std::move(text)});
    }
    report_items();
    add_left_out(out_.dropped, unwritten_, "Python object", "Python objects", "a file for weights_only=True",
                 Skipped::training_state);
  }

  /// Objects of DCP whose classes are not known here.
  void report_items() {
    if (map_.format != "dcp" && map_.origin != "dcp") return;
    std::vector<std::string> items;
    for (std::uint32_t i = 0; i < request_.tensors.size(); ++i) {
      if (written_[i] && source(i).role == Role::blob) items.push_back(request_.tensors[i].name);
    }
    if (items.empty()) return;
    out_.dropped.push_back(
        {.severity = Severity::warning,
         .text =
             fmt::format("{} of a class that ckpt does not know, written as bytes (uint8), one torch.save file each: "
                         "{}",
                         items.size() == 1 ? "a Python object" : fmt::format("{} Python objects", items.size()),
                         name_list(items))});
  }

  const WriteRequest& request_;
  TargetTensors names_;
  const Map& map_;
  const std::vector<bool> written_;  // by WriteRequest::tensors
  const RandomStates random_states_;
  Nest nest_;
  std::string without_place_;  // the first value that the nest could not take
  Plain plain_;
  std::vector<std::string> unwritten_;
  std::unordered_set<std::string> known_unwritten_;
  std::unordered_set<std::string> in_objects_;  // names of tensors
  std::unordered_set<const Value*> seen_;       // by add_refs
  WrittenState out_;
};

}  // namespace

Result<WrittenState> state_of(const WriteRequest& request, RandomStates random_states) {
  return StateBuilder(request, random_states).build();
}

ValuePtr state_dict(const WriteRequest& request, const std::vector<std::uint32_t>& selected) {
  std::unordered_map<std::string_view, std::vector<std::string_view>> tied;
  for (const Alias& alias : request.aliases) tied[alias.target].push_back(alias.name);
  Dict dict{.kind = Dict::Kind::ordered};
  for (const std::uint32_t i : selected) {
    const std::string& name = request.tensors[i].name;
    dict.items.emplace_back(boxed({name}), boxed({TensorRef{.name = name}}));
    const auto also = tied.find(name);
    if (also == tied.end()) continue;
    for (const std::string_view other : also->second)
      dict.items.emplace_back(boxed({std::string(other)}), boxed({TensorRef{.name = name}}));
  }
  return boxed({std::move(dict)});
}

}  // namespace ckpt::torch
