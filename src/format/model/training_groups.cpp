#include "format/model/training_groups.hpp"

#include <algorithm>
#include <map>
#include <memory>

#include "format/model/match_parameters.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kMembers = "params";
constexpr std::string_view kMemberNames = "param_names";

std::vector<const Value*> items_of(const Value* value) {
  std::vector<const Value*> out;
  if (value == nullptr) return out;
  if (const auto* list = std::get_if<List>(&value->v)) {
    for (const ValuePtr& item : list->items) out.push_back(item.get());
  }
  return out;
}

bool add_member(SpelledGroup& group, const Value& member) {
  if (const auto* text = text_of(&member)) {
    group.names.push_back(*text);
    return true;
  }
  const auto number = whole_number(&member);
  if (!number || *number < 0) return false;
  group.numbers.push_back(static_cast<std::uint64_t>(*number));
  return true;
}

std::optional<SpelledGroup> read_group(const Value& value) {
  const auto* dict = std::get_if<Dict>(&value.v);
  if (dict == nullptr) return std::nullopt;
  SpelledGroup out;
  for (const Value* item : items_of(member(&value, kMembers))) {
    if (!add_member(out, *item)) return std::nullopt;
  }
  if (!out.names.empty() && !out.numbers.empty()) return std::nullopt;
  std::vector<std::string> names;
  for (const Value* item : items_of(member(&value, kMemberNames))) {
    if (const auto* text = text_of(item)) names.push_back(*text);
  }
  // Both are kept: state is keyed by the numbers, and the names are whose they are.
  if (!out.numbers.empty() && names.size() == out.numbers.size()) out.names = std::move(names);
  for (const auto& [key, option] : dict->items) {
    const auto* name = text_of(key.get());
    if (name == nullptr || *name == kMembers || *name == kMemberNames) continue;
    out.options.emplace_back(*name, as_group_option(*name, *option));
  }
  return out;
}

std::optional<std::vector<SpelledGroup>> read_list(const Value& value) {
  std::vector<SpelledGroup> out;
  std::vector<const Value*> items = items_of(&value);
  if (const auto* dict = std::get_if<Dict>(&value.v)) {
    for (const auto& [key, item] : dict->items) items.push_back(item.get());
  }
  for (const Value* item : items) {
    auto group = read_group(*item);
    if (!group) return std::nullopt;
    out.push_back(*std::move(group));
  }
  return out;
}

/// Equal options in an equal order. Written out, so that any value can be compared.
void write_text(const Value& value, std::string& out) {
  const auto add = [&](std::string_view kind, const std::string& text) {
    out += std::string(kind) + std::to_string(text.size()) + ":" + text;
  };
  if (std::holds_alternative<None>(value.v)) return add("n", "");
  if (const auto* set = std::get_if<bool>(&value.v)) return add("t", *set ? "1" : "0");
  if (const auto* whole = std::get_if<std::int64_t>(&value.v)) return add("i", std::to_string(*whole));
  if (const auto* real = std::get_if<double>(&value.v)) {
    std::uint64_t bits = 0;
    static_assert(sizeof bits == sizeof *real);
    __builtin_memcpy(&bits, real, sizeof bits);
    return add("f", std::to_string(bits));
  }
  if (const auto* text = std::get_if<std::string>(&value.v)) return add("s", *text);
  if (const auto* ref = std::get_if<TensorRef>(&value.v)) return add("r", ref->name);
  if (const auto* big = std::get_if<BigInt>(&value.v)) return add("b", big->decimal);
  if (const auto* bytes = std::get_if<Bytes>(&value.v)) return add("y", bytes->data);
  if (const auto* list = std::get_if<List>(&value.v)) {
    out += "l" + std::to_string(list->items.size()) + ":";
    for (const ValuePtr& item : list->items) write_text(*item, out);
    return;
  }
  add("o", std::to_string(reinterpret_cast<std::uintptr_t>(&value)));  // of no known kind: equal to itself only
}

/// Options by the parameter's name: those whose options are equal are one group, as the optimizer had it or may have.
std::optional<std::vector<SpelledGroup>> read_flattened(std::span<const TreeLeaf> leaves,
                                                        std::span<const std::string> keys) {
  // By parameter and option: the option's value, or the leaves of it ("betas.0").
  std::unordered_map<std::string_view, std::map<std::string, std::vector<TreeLeaf>>> options;
  for (const std::string& key : keys) options.try_emplace(key);
  for (const TreeLeaf& leaf : leaves) {
    const std::string text = dotted(leaf.path);
    bool known = false;
    for (std::size_t dot = text.rfind('.'); dot != std::string::npos;
         dot = dot == 0 ? std::string::npos : text.rfind('.', dot - 1)) {
      const auto at = options.find(std::string_view(text).substr(0, dot));
      if (at == options.end()) continue;
      Path option = split_at_dots(text.substr(dot + 1));
      for (PathPart& part : option) {
        if (const auto index = index_of(part)) part = static_cast<std::int64_t>(*index);
      }
      at->second[part_text(option.front())].push_back({Path(option.begin() + 1, option.end()), leaf.value});
      known = true;
      break;
    }
    if (!known) return std::nullopt;
  }
  std::vector<SpelledGroup> out;
  std::unordered_map<std::string, std::size_t> by_options;
  for (const std::string& key : keys) {
    std::vector<std::pair<std::string, Value>> mine;
    for (const auto& [name, parts] : options.at(key)) {
      const auto value = build_tree(parts);
      if (!value) return std::nullopt;
      mine.emplace_back(name, as_group_option(name, *value));
    }
    if (mine.empty()) continue;
    std::string text;
    for (const auto& [name, value] : mine) {
      text += std::to_string(name.size()) + ":" + name;
      write_text(value, text);
    }
    const auto [at, is_new] = by_options.emplace(std::move(text), out.size());
    if (is_new) out.push_back({.options = std::move(mine), .in_order = false});
    out[at->second].names.push_back(key);
  }
  return out;
}

}  // namespace

Value as_group_option(std::string_view name, const Value& value) {
  Value out = value;
  if (name == "betas") {
    if (auto* list = std::get_if<List>(&out.v)) list->kind = List::Kind::tuple;
  }
  return out;
}

void add_tensor_names(const Value& root, std::unordered_set<std::string_view>& names) {
  std::vector<const Value*> open{&root};
  while (!open.empty()) {
    const Value* value = open.back();
    open.pop_back();
    if (value == nullptr) continue;
    if (const auto* ref = std::get_if<TensorRef>(&value->v)) names.insert(ref->name);
    if (const auto* list = std::get_if<List>(&value->v)) {
      for (const ValuePtr& item : list->items) open.push_back(item.get());
    } else if (const auto* dict = std::get_if<Dict>(&value->v)) {
      for (const auto& [key, item] : dict->items) open.push_back(item.get());
    }
  }
}

std::optional<std::vector<SpelledGroup>> read_groups(std::span<const TreeLeaf> leaves,
                                                     std::span<const std::string> keys) {
  if (leaves.empty()) return std::nullopt;
  const bool by_index = std::ranges::all_of(
      leaves, [](const TreeLeaf& leaf) { return !leaf.path.empty() && index_of(leaf.path.front()).has_value(); });
  if (!by_index && !leaves.front().path.empty()) return read_flattened(leaves, keys);
  std::vector<TreeLeaf> numbered(leaves.begin(), leaves.end());
  for (TreeLeaf& leaf : numbered) {
    for (PathPart& part : leaf.path) {
      if (const auto index = index_of(part)) part = static_cast<std::int64_t>(*index);
    }
  }
  const auto tree = build_tree(numbered);
  return tree ? read_list(*tree) : std::nullopt;
}

namespace {

/// If only shapes decide: each member's must be known, and equal to exactly one candidate's and no other member's.
std::optional<std::vector<std::vector<std::size_t>>> members_by_shape(
    const std::vector<Shape>& candidates, std::span<const SpelledGroup> groups,
    const std::unordered_map<std::uint64_t, Shape>& shapes) {
  std::map<Shape, std::vector<std::size_t>> of_shape;
  for (std::size_t i = 0; i < candidates.size(); ++i) of_shape[candidates[i]].push_back(i);
  std::vector<std::vector<std::size_t>> out;
  for (const SpelledGroup& group : groups) {
    std::vector<std::size_t>& members = out.emplace_back();
    for (const std::uint64_t number : group.numbers) {
      const auto shape = shapes.find(number);
      const auto found = shape == shapes.end() ? of_shape.end() : of_shape.find(shape->second);
      if (found == of_shape.end() || found->second.size() != 1) return std::nullopt;
      members.push_back(found->second.front());
      found->second.clear();  // another member of this shape finds none
    }
  }
  return out;
}

}  // namespace

std::optional<std::vector<std::vector<std::size_t>>> name_members(
    const std::vector<Shape>& candidates, std::span<const SpelledGroup> groups,
    const std::unordered_map<std::uint64_t, Shape>& shapes, bool in_module_order) {
  if (!in_module_order) return members_by_shape(candidates, groups, shapes);
  std::vector<UnnamedGroup> unnamed;
  for (const SpelledGroup& group : groups) {
    UnnamedGroup& out = unnamed.emplace_back();
    for (const std::uint64_t number : group.numbers) {
      const auto shape = shapes.find(number);
      out.shapes.push_back(shape == shapes.end() ? std::nullopt : std::optional(shape->second));
    }
  }
  auto found = match_parameters(candidates, unnamed, {});
  if (!found || !*found) return std::nullopt;  // without bytes to compare it cannot fail, only find nothing
  return **std::move(found);
}

}  // namespace ckpt
