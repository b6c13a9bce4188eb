#include "convert/deepspeed/writer/joined_groups.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/model/object_tree.hpp"
#include "format/model/same_value.hpp"

namespace ckpt::deepspeed {
namespace {

/// The names in the list `params` of a parameter group.
const List* params_of(const ValuePtr& group) {
  const Value* names = member(group.get(), "params");
  return names == nullptr ? nullptr : std::get_if<List>(&names->v);
}

/// What a group has besides its members, by key.
std::vector<std::pair<std::string, ValuePtr>> options_of(const ValuePtr& group) {
  std::vector<std::pair<std::string, ValuePtr>> out;
  const auto* dict = group != nullptr ? std::get_if<Dict>(&group->v) : nullptr;
  if (dict == nullptr) return out;
  for (const auto& [key, value] : dict->items) {
    const auto* text = text_of(key.get());
    if (text != nullptr && *text != "params") out.emplace_back(*text, value);
  }
  return out;
}

/// The keys that only one of the groups has, or with another value.
std::set<std::string> differences(const ValuePtr& a, const ValuePtr& b) {
  std::set<std::string> out;
  for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)}) {
    const auto others = options_of(other);
    for (const auto& [key, value] : options_of(one)) {
      const auto same = std::ranges::find(others, key, &std::pair<std::string, ValuePtr>::first);
      if (same == others.end() || !same_value(*value, *same->second)) out.insert(key);
    }
  }
  return out;
}

/// For each group the one of another rank that it is joined with: at its own place if the options are equal, else the
/// first free one with equal options; all at their own places if a group has none.
std::vector<std::size_t> partners(const std::vector<ValuePtr>& mine, const std::vector<ValuePtr>& theirs) {
  const std::size_t count = std::min(mine.size(), theirs.size());
  std::vector<std::size_t> in_place(count);
  std::iota(in_place.begin(), in_place.end(), std::size_t{0});
  std::vector<std::size_t> out = in_place;
  std::vector<std::size_t> moved;  // groups whose options are elsewhere
  std::set<std::size_t> free;
  for (std::size_t g = 0; g < count; ++g) {
    if (differences(mine[g], theirs[g]).empty()) continue;
    moved.push_back(g);
    free.insert(g);
  }
  for (const std::size_t g : moved) {
    const auto equal =
        std::ranges::find_if(free, [&](std::size_t t) { return differences(mine[g], theirs[t]).empty(); });
    if (equal == free.end()) return in_place;
    out[g] = *equal;
    free.erase(equal);
  }
  return out;
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

std::vector<NamedObject> joined_groups(const std::vector<NamedObject>& objects, std::set<std::string>& differing) {
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
      const std::vector<std::size_t> places = partners(joined->items, groups->items);
      for (std::size_t g = 0; g < places.size(); ++g) {
        const ValuePtr& theirs = groups->items[places[g]];
        differing.merge(differences(joined->items[g], theirs));
        joined->items[g] = with_members_of(joined->items[g], theirs);
      }
    }
  }
  return out;
}

}  // namespace ckpt::deepspeed
