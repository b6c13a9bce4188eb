#include "format/model/object_tree.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "format/text/parse_number.hpp"

namespace ckpt {

FullPaths::FullPaths(const Map& map) {
  for (const MapFile& file : map.files) files_.insert(file.path);
}

Path FullPaths::of(const std::string& name, const Path& path) const {
  const std::string tail = dotted(path);
  Path out;
  std::size_t begin = 0;
  if (!path.empty() && name.size() > tail.size() && name.ends_with(tail) &&
      name[name.size() - tail.size() - 1] == '/') {
    out.emplace_back(name.substr(0, name.size() - tail.size()));
  } else if (path.empty()) {
    for (std::size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1)) {
      if (!files_.contains(name.substr(0, at))) continue;
      out.emplace_back(name.substr(0, at + 1));
      begin = at + 1;
      break;
    }
  }
  if (!path.empty()) {
    out.insert(out.end(), path.begin(), path.end());
    auto* first = std::get_if<std::string>(&out.front());
    if (first != nullptr && files_.contains(*first) && name.starts_with(*first + "/")) *first += '/';
    return out;
  }
  for (std::size_t dot = name.find('.', begin); dot != std::string::npos; dot = name.find('.', begin)) {
    out.emplace_back(name.substr(begin, dot - begin));
    begin = dot + 1;
  }
  out.emplace_back(name.substr(begin));
  return out;
}

namespace {

/// A container under construction.
struct Branch {
  std::vector<PathPart> keys{};
  std::map<PathPart, std::size_t> place{};
  std::vector<std::unique_ptr<Branch>> below{};
  ValuePtr leaf{};
};

void put(Branch& root, const TreeLeaf& leaf) {
  Branch* at = &root;
  for (const PathPart& part : leaf.path) {
    if (at->leaf != nullptr) return;
    const auto [found, is_new] = at->place.emplace(part, at->keys.size());
    if (is_new) {
      at->keys.push_back(part);
      at->below.push_back(std::make_unique<Branch>());
    }
    at = at->below[found->second].get();
  }
  if (at->leaf == nullptr && at->keys.empty()) at->leaf = leaf.value;
}

bool is_list(const Branch& branch) {
  for (std::size_t i = 0; i < branch.keys.size(); ++i) {
    const auto at = branch.place.find(PathPart(static_cast<std::int64_t>(i)));
    if (at == branch.place.end()) return false;
  }
  return true;
}

ValuePtr key_value(const PathPart& part) {
  auto out = std::make_shared<Value>();
  if (const auto* text = std::get_if<std::string>(&part)) {
    out->v = *text;
  } else {
    out->v = std::get<std::int64_t>(part);
  }
  return out;
}

/// Recursion is bounded: a level of the tree is a part of a path.
ValuePtr finish(const Branch& branch) {
  if (branch.leaf != nullptr) return branch.leaf;
  auto out = std::make_shared<Value>();
  if (is_list(branch)) {
    List list;
    for (std::size_t i = 0; i < branch.keys.size(); ++i)
      list.items.push_back(finish(*branch.below[branch.place.at(PathPart(static_cast<std::int64_t>(i)))]));
    out->v = std::move(list);
  } else {
    Dict dict;
    for (std::size_t i = 0; i < branch.keys.size(); ++i)
      dict.items.emplace_back(key_value(branch.keys[i]), finish(*branch.below[i]));
    out->v = std::move(dict);
  }
  return out;
}

}  // namespace

std::optional<Value> build_tree(std::span<const TreeLeaf> leaves) {
  if (leaves.empty()) return std::nullopt;
  Branch root;
  for (const TreeLeaf& leaf : leaves) put(root, leaf);
  return *finish(root);
}

const Value* member(const Value* value, std::string_view key) {
  const Dict* dict = value != nullptr ? std::get_if<Dict>(&value->v) : nullptr;
  if (dict == nullptr) return nullptr;
  for (const auto& [name, item] : dict->items) {
    const auto* text = std::get_if<std::string>(&name->v);
    if (text != nullptr && *text == key) return item.get();
  }
  return nullptr;
}

std::optional<std::int64_t> whole_number(const Value* value) {
  if (value == nullptr) return std::nullopt;
  if (const auto* whole = std::get_if<std::int64_t>(&value->v)) return *whole;
  const auto* real = std::get_if<double>(&value->v);
  constexpr double kMost = 9007199254740992;  // 2^53: above it not every integer is a double
  if (real == nullptr || std::floor(*real) != *real || std::abs(*real) > kMost) return std::nullopt;
  return static_cast<std::int64_t>(*real);
}

std::optional<double> real_number(const Value* value) {
  if (value == nullptr) return std::nullopt;
  if (const auto* real = std::get_if<double>(&value->v)) return *real;
  if (const auto* whole = std::get_if<std::int64_t>(&value->v)) return static_cast<double>(*whole);
  return std::nullopt;
}

std::optional<bool> truth(const Value* value) {
  const bool* set = value != nullptr ? std::get_if<bool>(&value->v) : nullptr;
  return set != nullptr ? std::optional(*set) : std::nullopt;
}

const std::string* text_of(const Value* value) {
  return value != nullptr ? std::get_if<std::string>(&value->v) : nullptr;
}

std::optional<std::uint64_t> index_of(const PathPart& part) {
  if (const auto* index = std::get_if<std::int64_t>(&part))
    return *index >= 0 ? std::optional(static_cast<std::uint64_t>(*index)) : std::nullopt;
  const std::string& text = std::get<std::string>(part);
  const bool plain = text.size() == 1 || !text.starts_with('0');
  return plain ? parse_number<std::uint64_t>(text) : std::nullopt;
}

}  // namespace ckpt
