#include "format/model/training_state.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "format/model/match_parameters.hpp"
#include "format/model/name_order.hpp"
#include "format/model/object_tree.hpp"
#include "format/model/training_groups.hpp"
#include "format/model/training_progress.hpp"

namespace ckpt {
namespace {

bool is_real(Dtype dtype) {
  return dtype == Dtype::f64 || dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

/// Buffers of torch.nn and transformers that are floating-point and saved.
bool is_usual_buffer(std::string_view name) {
  constexpr std::array<std::string_view, 5> kNames{"running_mean", "running_var", "inv_freq", "cos_cached",
                                                   "sin_cached"};
  const std::size_t dot = name.rfind('.');
  return std::ranges::find(kNames, dot == std::string_view::npos ? name : name.substr(dot + 1)) != kNames.end();
}

/// Names that torch.nn, and modules that follow it, give parameters; the names of buffers.
bool is_usual_parameter(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return last.ends_with("weight") || last.ends_with("bias") || name.find("lora_") != std::string_view::npos;
}

/// The place of `word` among the first parts of a path.
std::optional<std::size_t> find_part(const Path& path, std::string_view word) {
  for (std::size_t i = 0; i < std::min(path.size(), kMostRootParts + 1); ++i) {
    const auto* text = std::get_if<std::string>(&path[i]);
    if (text != nullptr && *text == word) return i;
  }
  return std::nullopt;
}

/// A path as text that names are made of: parts joined by dots, a file's part by its own slash.
std::string joined(const Path& path) {
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (i != 0 && !out.ends_with('/')) out += '.';
    out += part_text(path[i]);
  }
  return out;
}

/// Optimizer state of one tensor, by its key.
struct KeyedSlot {
  std::uint32_t tensor = 0;
  Path root{};                            // of the optimizer
  std::string key{};                      // text between "state" and the slot
  std::optional<std::uint64_t> number{};  // if the key is one
};

class Assembly {
 public:
  explicit Assembly(const TrainingSource& source)
      : source_(source), map_(*source.map), paths_(map_), shelf_(source.objects, paths_) {}

  TrainingState run() {
    sort_items();
    find_optimizer();
    find_wrapper();
    add_model();
    find_order();
    place_named_slots();
    read_optimizer_groups();
    place_numbered();
    read_numbers();
    decide_kinds();
    add_one_group();
    order_members();
    read_progress(shelf_, root_ ? &*root_ : nullptr, map_.meta.step, out_);
    for (const NamedObject& object : source_.objects) {
      if (!shelf_.is_taken(object)) (is_random(object) ? out_.rng : out_.rest).push_back(object);
    }
    return std::move(out_);
  }

 private:
  const Tensor& tensor(std::uint32_t index) const { return map_.tensors[index]; }

  void sort_items() {
    std::unordered_set<std::string_view> objects;
    for (const NamedObject& object : source_.objects) objects.insert(object.name);
    for (const StateItem& item : source_.items) {
      const Tensor& found = tensor(item.tensor);
      if (item.role == Role::blob && objects.contains(found.name)) continue;  // the stored form of that object
      const Path path = paths_.of(found.name, found.path);
      if (item.role == Role::param || item.role == Role::buffer) {
        weights_.push_back({&item, path});
      } else if (item.role == Role::slot) {
        sort_slot(item.tensor, with_own_words(path));
      } else {
        out_.loose.push_back(item.tensor);
      }
    }
  }

  void sort_slot(std::uint32_t index, const Path& path) {
    const Tensor& found = tensor(index);
    const auto at = find_part(path, kState);
    const std::string text = at ? joined(tail(path, *at + 1)) : std::string();
    if (!at || found.slot.empty() || !text.ends_with("." + found.slot)) {
      if (!found.parameter.empty()) {
        slots_.push_back({.tensor = index, .key = found.parameter});
      } else {
        out_.loose.push_back(index);
      }
      return;
    }
    KeyedSlot slot{
        .tensor = index, .root = head(path, *at), .key = text.substr(0, text.size() - found.slot.size() - 1)};
    if (found.parameter.empty()) slot.number = index_of(PathPart(slot.key));
    slots_.push_back(std::move(slot));
  }

  /// The path of the one optimizer: the part before "state" and "param_groups".
  void find_optimizer() {
    std::set<Path> roots;
    for (const KeyedSlot& slot : slots_) {
      if (!slot.root.empty() || slot.number) roots.insert(slot.root);
    }
    for (const auto& [object, path] : shelf_.objects()) {
      if (const auto at = find_part(path, kGroups)) roots.insert(head(path, *at));
    }
    out_.has_optimizer = !roots.empty() || !slots_.empty();
    if (roots.size() == 1) root_ = *roots.begin();
    if (roots.size() < 2) return;
    std::string names;
    for (const Path& root : roots) names += (names.empty() ? "" : ", ") + joined(root);
    out_.unplaced_reason = "found " + std::to_string(roots.size()) + " optimizers (" + names + ")";
    for (const KeyedSlot& slot : slots_) out_.unplaced.push_back(slot.tensor);
    slots_.clear();
  }

  /// The prefix of the model's names from a wrapper in nested state.
  void find_wrapper() {
    if (!map_.nested || weights_.empty()) return;
    for (const KeyedSlot& slot : slots_) {
      const std::string& name = tensor(slot.tensor).parameter;
      if (slot.number || name.size() <= slot.key.size() || !name.ends_with(slot.key)) continue;
      const char before = name[name.size() - slot.key.size() - 1];
      if (before != '.' && before != '/') continue;
      out_.wrapper = name.substr(0, name.size() - slot.key.size());
      return;
    }
    Path wrapper;
    while (wrapper.size() <= kMostRootParts) {
      const auto part = wrapper_part(wrapper);
      if (!part) break;
      wrapper.push_back(*part);
    }
    if (wrapper.empty()) return;
    out_.wrapper = joined(wrapper);
    if (out_.wrapper.back() != '/') out_.wrapper += '.';
  }

  /// The part below `above` that wraps the model: a usual word, or one that all weights have and some other name lacks.
  std::optional<PathPart> wrapper_part(const Path& above) const {
    constexpr std::array<std::string_view, 5> kUsual{"state_dict", "model_state_dict", "model_state", "module",
                                                     "model"};
    std::unordered_map<std::string, std::size_t> weights;
    const PathPart* shared = nullptr;
    bool all_share = true;
    bool others = false;
    const auto is_file = [](const PathPart& part) { return part_text(part).ends_with('/'); };
    for (const auto& [item, path] : weights_) {
      if (!begins_with(path, above) || path.size() < above.size() + 2) {
        all_share = all_share && !begins_with(path, above);
        continue;
      }
      const PathPart& part = path[above.size()];
      ++weights[part_text(part)];
      if (shared != nullptr && !(*shared == part)) all_share = false;
      if (shared == nullptr) shared = &part;
    }
    if (shared == nullptr) return std::nullopt;
    const auto look = [&](const Path& path) {
      if (!begins_with(path, above) || path.size() <= above.size()) return;
      const PathPart& part = path[above.size()];
      // Another file's contents say nothing about names in this one.
      others = others || (!(part == *shared) && (is_file(*shared) || !is_file(part)) && part_text(part) != "_metadata");
    };
    for (const auto& [object, path] : shelf_.objects()) look(path);
    for (const KeyedSlot& slot : slots_) look(slot.root.empty() ? Path{std::string(kState)} : slot.root);
    if (!others) return std::nullopt;
    if (all_share) return *shared;
    for (const std::string_view word : kUsual) {
      if (weights.contains(std::string(word))) return PathPart(std::string(word));
    }
    return std::nullopt;
  }

  std::string without_wrapper(const std::string& name) const {
    const bool wrapped = !out_.wrapper.empty() && name.starts_with(out_.wrapper);
    return wrapped ? name.substr(out_.wrapper.size()) : name;
  }

  /// The weight's name in the source, also where its master is taken as the weight.
  const std::string& weight_name(const StateItem& item) const {
    const Tensor& found = tensor(item.tensor);
    return found.role == Role::slot && !found.parameter.empty() ? found.parameter : found.name;
  }

  /// The name in the target without the wrapper, also if a prefix was added before it.
  std::string model_name(const StateItem& item) const {
    const std::string& source = weight_name(item);
    const std::string bare = without_wrapper(source);
    if (bare.size() != source.size() && item.name.ends_with(source))
      return item.name.substr(0, item.name.size() - source.size()) + bare;
    return item.name;
  }

  void add_model() {
    for (const auto& [item, path] : weights_) {
      const Tensor& found = tensor(item->tensor);
      const std::string& name = weight_name(*item);
      if (!out_.wrapper.empty() && without_wrapper(name).size() == name.size()) {
        out_.loose.push_back(item->tensor);  // next to the model: a random state, a scaler's counter
        continue;
      }
      by_source_.emplace(name, out_.model.size());
      out_.model.push_back(
          {.name = model_name(*item),
           .tensor = item->tensor,
           .dtype = item->dtype,
           .shape = found.shape,
           .kind = item->role == Role::buffer ? ModelTensor::Kind::buffer : ModelTensor::Kind::frozen});
    }
    std::unordered_set<std::string_view> names;
    for (const ModelTensor& entry : out_.model) names.insert(entry.name);
    for (const Alias& alias : source_.aliases) {
      std::string target = without_wrapper(alias.target);
      if (names.contains(target)) out_.ties.push_back({without_wrapper(alias.name), std::move(target)});
    }
    for (const Alias& alias : map_.aliases) tied_.insert(alias.name);
  }

  /// The order of the modules: as the user gives it, or as the map has it.
  void find_order() {
    std::unordered_map<std::string_view, std::size_t> by_name;
    for (std::size_t i = 0; i < out_.model.size(); ++i) by_name.emplace(out_.model[i].name, i);
    for (const Alias& tie : out_.ties) {
      if (const auto target = by_name.find(tie.target); target != by_name.end())
        by_name.emplace(tie.name, target->second);
    }
    std::unordered_set<std::size_t> seen;
    for (const std::string& name : map_.parameter_order) {
      const auto entry = by_name.find(without_wrapper(name));
      if (entry != by_name.end() && seen.insert(entry->second).second) listed_.push_back(entry->second);
    }
    std::vector<std::string_view> names;
    for (const Weight& weight : weights_) names.emplace_back(weight.item->name);
    ordered_ = !listed_.empty() || (map_.module_order && !is_sorted_by_name(names));
  }

  void place(std::size_t entry, std::uint32_t index) {
    ModelTensor& to = out_.model[entry];
    const std::string& slot = tensor(index).slot;
    to.kind = ModelTensor::Kind::trained;
    if (slot == kMasterSlotName) {
      to.master = index;
    } else if (slot == kStepSlotName) {
      to.step = index;
    } else {
      to.slots.push_back({slot, index});
    }
  }

  void place_named_slots() {
    std::size_t of_ties = 0;
    for (const KeyedSlot& slot : slots_) {
      if (slot.number) continue;
      const Tensor& found = tensor(slot.tensor);
      auto entry = by_source_.find(found.parameter);
      if (entry == by_source_.end() && tied_.contains(found.parameter)) {
        ++of_ties;
        continue;
      }
      if (entry == by_source_.end() && found.slot == kMasterSlotName) {
        // Only the master is stored, or only optimizer state was asked for.
        entry = by_source_.emplace(found.parameter, out_.model.size()).first;
        out_.model.push_back({.name = without_wrapper(found.parameter), .dtype = found.dtype, .shape = found.shape});
      }
      if (entry == by_source_.end()) {
        out_.unplaced.push_back(slot.tensor);
        out_.unplaced_reason = found.name + " is state of a missing parameter";
        continue;
      }
      by_key_.emplace(slot.key, entry->second);
      place(entry->second, slot.tensor);
    }
    if (of_ties != 0)
      out_.notes.push_back(
          {.text = "left out: " + std::to_string(of_ties) + " tensors of optimizer state under tied names"});
  }

  std::optional<std::size_t> entry_of(const std::string& text) const {
    if (const auto key = by_key_.find(text); key != by_key_.end()) return key->second;
    if (const auto whole = by_source_.find(text); whole != by_source_.end()) return whole->second;
    const auto wrapped = by_source_.find(out_.wrapper + text);
    return wrapped == by_source_.end() ? std::nullopt : std::optional(wrapped->second);
  }

  /// How the optimizer spells the parameters, in module order.
  std::vector<std::string> keys() const {
    std::vector<std::string> out(out_.model.size());
    for (const auto& [key, entry] : by_key_) out[entry] = key;
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i].empty()) out[i] = out_.model[i].name;
    }
    return out;
  }

  void read_optimizer_groups() {
    if (!root_) return;
    Path at = *root_;
    at.emplace_back(std::string(kGroups));
    std::vector<TreeLeaf> leaves;
    if (const NamedObject* whole = shelf_.take(at)) {
      leaves.push_back({{}, std::make_shared<Value>(whole->value)});
    } else {
      leaves = shelf_.take_below(at);
      take_tensor_options(at, leaves);
    }
    const auto names = keys();
    auto groups = read_groups(leaves, names);
    if (!groups) return;
    spelled_ = *std::move(groups);
    out_.has_group_options = !spelled_.empty();
    for (std::size_t g = 0; g < spelled_.size(); ++g) {
      out_.groups.push_back({.options = spelled_[g].options});
      for (std::size_t m = 0; m < spelled_[g].names.size(); ++m) add_named_member(g, m);
    }
    std::unordered_set<std::string_view> held;
    for (const SpelledGroup& group : spelled_) {
      for (const auto& [name, value] : group.options) add_tensor_names(value, held);
    }
    std::erase_if(out_.loose, [&](std::uint32_t index) { return held.contains(tensor(index).name); });
  }

  /// A learning rate may be a tensor.
  void take_tensor_options(const Path& groups, std::vector<TreeLeaf>& leaves) {
    for (const StateItem& item : source_.items) {
      const Tensor& found = tensor(item.tensor);
      const Path path = with_own_words(paths_.of(found.name, found.path));
      if (path.size() < groups.size() + 2 || !begins_with(path, groups)) continue;
      leaves.push_back({tail(path, groups.size()), std::make_shared<Value>(Value{TensorRef{.name = found.name}})});
    }
  }

  void add_named_member(std::size_t group, std::size_t member) {
    const auto entry = entry_of(spelled_[group].names[member]);
    if (!entry) return;
    if (member < spelled_[group].numbers.size()) by_number_.emplace(spelled_[group].numbers[member], *entry);
    join(group, *entry);
  }

  void join(std::size_t group, std::size_t entry) {
    if (out_.model[entry].group) return;
    out_.model[entry].group = group;
    out_.groups[group].members.push_back(entry);
  }

  /// State that is keyed by numbers, and groups that list numbers.
  void place_numbered() {
    std::unordered_map<std::uint64_t, std::vector<std::pair<std::string_view, Shape>>> state;
    for (const KeyedSlot& slot : slots_) {
      if (!slot.number) continue;
      const Tensor& found = tensor(slot.tensor);
      state[*slot.number].emplace_back(found.slot, found.slot == kStepSlotName ? Shape() : found.shape);
    }
    std::unordered_map<std::uint64_t, Shape> shapes;
    for (const auto& [number, kept] : state) {
      if (auto shape = shape_of_state(kept)) shapes.emplace(number, *std::move(shape));
    }
    const bool unnamed =
        std::ranges::any_of(spelled_, [](const auto& g) { return g.names.empty() && !g.numbers.empty(); });
    if (unnamed && !name_by_order(shapes)) {
      out_.order_is_missing = !ordered_ || !listed_.empty();
      out_.unplaced_reason =
          !listed_.empty()
              ? "the optimizer numbers its parameters, and the listed ones do not match its groups and shapes, or match them in several ways"
          : ordered_
              ? "the optimizer numbers its parameters, and their shapes and order do not identify them"
              : "the optimizer numbers its parameters in the order of the model, which the source does not record";
    }
    for (const KeyedSlot& slot : slots_) {
      if (!slot.number) continue;
      const auto entry = by_number_.find(*slot.number);
      if (entry != by_number_.end()) {
        place(entry->second, slot.tensor);
      } else {
        out_.unplaced.push_back(slot.tensor);
        if (out_.unplaced_reason.empty()) out_.unplaced_reason = "no parameter group lists the number of its parameter";
      }
    }
  }

  /// The entries that an optimizer may have, in the order of the modules.
  std::vector<std::size_t> in_order() const {
    if (!listed_.empty()) return listed_;
    std::vector<std::size_t> out(out_.model.size());
    std::iota(out.begin(), out.end(), std::size_t{0});
    return out;
  }

  bool name_by_order(const std::unordered_map<std::uint64_t, Shape>& shapes) {
    for (const bool with_usual_buffers : {false, true}) {
      std::vector<Shape> candidates;
      std::vector<std::size_t> entries;
      for (const std::size_t i : in_order()) {
        const ModelTensor& entry = out_.model[i];
        if (entry.kind == ModelTensor::Kind::buffer || !entry.tensor || !is_real(tensor(*entry.tensor).dtype)) continue;
        if (!with_usual_buffers && listed_.empty() && is_usual_buffer(entry.name)) continue;
        candidates.push_back(entry.shape);
        entries.push_back(i);
      }
      const auto found = name_members(candidates, spelled_, shapes, ordered_);
      if (!found) continue;
      if (ordered_ && listed_.empty() && !name_members(candidates, spelled_, shapes, false))
        out_.notes.push_back(
            {.text = "numbered optimizer state is taken in the model's order; if the optimizer was built in another "
                     "order, list its parameters in a --map file"});
      for (std::size_t g = 0; g < found->size(); ++g) {
        for (std::size_t m = 0; m < (*found)[g].size(); ++m) {
          const std::size_t entry = entries[(*found)[g][m]];
          by_number_.emplace(spelled_[g].numbers[m], entry);
          join(g, entry);
        }
      }
      return true;
    }
    return false;
  }

  /// State stored as numbers, mostly the step: one for all members of a group (DeepSpeed), or one per parameter.
  void read_numbers() {
    if (!root_) return;
    Path at = *root_;
    at.emplace_back("group_state");
    const NamedObject* whole = shelf_.take(at);
    if (const auto* list = whole != nullptr ? std::get_if<List>(&whole->value.v) : nullptr) {
      for (const ValuePtr& group : list->items) {
        const Value* names = member(group.get(), "params");
        const auto* members = names != nullptr ? std::get_if<List>(&names->v) : nullptr;
        const auto* values = std::get_if<Dict>(&group->v);
        if (values == nullptr || members == nullptr) continue;
        for (const ValuePtr& name : members->items) {
          const auto* text = text_of(name.get());
          const auto entry = text != nullptr ? entry_of(*text) : std::nullopt;
          if (!entry) continue;
          for (const auto& [key, value] : values->items) {
            const auto* slot = text_of(key.get());
            if (slot != nullptr && *slot != "params") set_number(out_.model[*entry], *slot, *value);
          }
        }
      }
    }
    at.back() = std::string(kState);
    for (const auto& [object, path] : shelf_.objects()) {
      if (!begins_with(path, at) || path.size() < at.size() + 2) continue;
      const std::string slot = part_text(path.back());
      std::string key = joined(tail(path, at.size()));
      if (key.size() <= slot.size()) continue;
      key.resize(key.size() - slot.size() - 1);
      const auto number = index_of(PathPart(key));
      const auto by_number = number ? by_number_.find(*number) : by_number_.end();
      const auto entry = by_number != by_number_.end() ? std::optional(by_number->second) : entry_of(key);
      if (!entry || !real_number(&object->value)) continue;
      set_number(out_.model[*entry], slot, object->value);
      shelf_.mark(object);
    }
  }

  static void set_number(ModelTensor& entry, const std::string& slot, const Value& value) {
    if (slot == kStepSlotName) {
      entry.step = value;
    } else {
      entry.values.emplace_back(slot, value);
    }
  }

  /// Which tensors are trained, frozen, or buffers.
  void decide_kinds() {
    const std::unordered_set<std::size_t> listed(listed_.begin(), listed_.end());
    const bool is_told = (!map_.nested && out_.has_optimizer) ||
                         std::ranges::any_of(map_.tensors, [](const Tensor& t) { return t.role == Role::buffer; });
    for (std::size_t i = 0; i < out_.model.size(); ++i) {
      ModelTensor& entry = out_.model[i];
      if (entry.group || entry.kind == ModelTensor::Kind::trained) {
        entry.kind = ModelTensor::Kind::trained;
        continue;
      }
      if (listed.contains(i) || (!listed.empty() && !out_.has_optimizer)) {
        entry.kind = !listed.contains(i)  ? ModelTensor::Kind::buffer
                     : out_.has_optimizer ? ModelTensor::Kind::frozen
                                          : ModelTensor::Kind::trained;
        continue;
      }
      if (entry.kind == ModelTensor::Kind::buffer) continue;
      const bool may_train = is_real(tensor(*entry.tensor).dtype) && (is_told || !is_usual_buffer(entry.name));
      entry.kind_is_known = is_told;
      if (!out_.has_optimizer) {
        entry.kind = may_train ? ModelTensor::Kind::trained : ModelTensor::Kind::buffer;
      } else if (!is_told && (!may_train || !is_usual_parameter(entry.name))) {
        entry.kind = ModelTensor::Kind::buffer;
      }
    }
  }

  /// Trained parameters of an optimizer whose groups are not stored, or of none, are one group.
  void add_one_group() {
    if (!out_.groups.empty() || !out_.unplaced.empty()) return;
    ParameterGroup all;
    for (std::size_t i = 0; i < out_.model.size(); ++i) {
      if (out_.model[i].kind == ModelTensor::Kind::trained) all.members.push_back(i);
    }
    if (all.members.empty()) return;
    for (const std::size_t entry : all.members) out_.model[entry].group = 0;
    out_.groups.push_back(std::move(all));
  }

  /// Members that no file lists in order are in that of the modules, where it is known.
  void order_members() {
    if (!out_.unplaced_reason.empty()) return;  // which says what is missing
    const bool as_stored = !spelled_.empty() && std::ranges::all_of(spelled_, &SpelledGroup::in_order);
    if (!as_stored && !ordered_) out_.order_is_missing = true;
    if (as_stored || listed_.empty()) return;
    std::unordered_map<std::size_t, std::size_t> place_of;
    for (const std::size_t entry : listed_) place_of.emplace(entry, place_of.size());
    const auto place = [&](std::size_t entry) {
      const auto at = place_of.find(entry);
      return at == place_of.end() ? SIZE_MAX : at->second;
    };
    for (ParameterGroup& group : out_.groups) {
      std::ranges::stable_sort(group.members, {}, place);
      if (!group.members.empty() && place(group.members.back()) == SIZE_MAX) out_.order_is_missing = true;
    }
  }

  static bool is_random(const NamedObject& object) { return lower_text(object.name).find("rng") != std::string::npos; }

  struct Weight {
    const StateItem* item;
    Path path;
  };

  const TrainingSource& source_;
  const Map& map_;
  const FullPaths paths_;
  ObjectShelf shelf_;
  TrainingState out_{};
  std::vector<Weight> weights_{};
  std::vector<KeyedSlot> slots_{};
  std::optional<Path> root_{};  // of the optimizer
  std::vector<SpelledGroup> spelled_{};
  std::unordered_map<std::string, std::size_t> by_source_{};  // name in the source -> entry
  std::unordered_map<std::string, std::size_t> by_key_{};     // as optimizer state spells it -> entry
  std::unordered_map<std::uint64_t, std::size_t> by_number_{};
  std::vector<std::size_t> listed_{};  // entries, in the order that the user gives
  bool ordered_ = false;               // the entries are in the order of the modules, or the listed ones are
  std::unordered_set<std::string> tied_{};
};

}  // namespace

TrainingState training_state(const TrainingSource& source) {
  return Assembly(source).run();
}

std::vector<StateItem> all_items(const Map& map) {
  std::vector<StateItem> out;
  for (std::uint32_t i = 0; i < map.tensors.size(); ++i) {
    const Tensor& tensor = map.tensors[i];
    out.push_back({i, tensor.name, tensor.dtype, tensor.role});
  }
  return out;
}

}  // namespace ckpt
