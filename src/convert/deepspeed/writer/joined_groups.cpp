#include "convert/deepspeed/writer/joined_groups.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "format/model/object_tree.hpp"

namespace ckpt::deepspeed {
namespace {

/// The names in the list `params` of a parameter group.
const List* params_of(const ValuePtr& group) {
  const Value* names = member(group.get(), "params");
  return names == nullptr ? nullptr : std::get_if<List>(&names->v);
}

/// A parameter group with the members of another one that it does not have.
ValuePtr with_members_of(const ValuePtr& group, const ValuePtr& other) {
  const List* mine = params_of(group);
  const List* theirs = params_of(other);
  if (mine == nullptr || theirs == nullptr) return group;
  List joined = *mine;
  std::set<std::string> known;
  for (const ValuePtr& name : mine->items) {
    if (const auto* text = text_of(name.get())) known.insert(*text);
  }
  for (const ValuePtr& name : theirs->items) {
    const auto* text = text_of(name.get());
    if (text != nullptr && known.insert(*text).second) joined.items.push_back(name);
  }
  Dict out = std::get<Dict>(group->v);
  for (auto& [key, value] : out.items) {
    const auto* text = text_of(key.get());
    if (text != nullptr && *text == "params") value = std::make_shared<Value>(Value{joined});
  }
  return std::make_shared<Value>(Value{std::move(out)});
}

}  // namespace

std::vector<NamedObject> joined_groups(const std::vector<NamedObject>& objects) {
  std::vector<NamedObject> out;
  std::unordered_map<std::string, NamedObject*> first;
  out.reserve(objects.size());
  for (const NamedObject& object : objects) {
    const std::string name = object.name.substr(0, object.name.rfind('@'));
    const bool is_groups = name != object.name && (name == "optimizer.param_groups" || name == "optimizer.group_state");
    const auto* groups = is_groups ? std::get_if<List>(&object.value.v) : nullptr;
    if (groups == nullptr) {
      out.push_back(object);
    } else if (NamedObject*& whole = first[name]; whole == nullptr) {
      whole = &out.emplace_back(object);
      whole->name = name;
      whole->path.clear();
    } else if (auto* joined = std::get_if<List>(&whole->value.v)) {
      for (std::size_t g = 0; g < std::min(joined->items.size(), groups->items.size()); ++g)
        joined->items[g] = with_members_of(joined->items[g], groups->items[g]);
    }
  }
  return out;
}

}  // namespace ckpt::deepspeed
