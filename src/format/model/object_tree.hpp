#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "format/model/model.hpp"

/// Rebuilds nested state that a map holds as single leaves. Depth is bounded by the paths' own lengths.
namespace ckpt {

/// Paths of a map's tensors and objects from the root of nested state. If several files form one map, a name begins
/// with "FILE/", and that is the first part, including the slash.
class FullPaths {
 public:
  explicit FullPaths(const Map& map);
  /// path  as in the map: empty if it is the name split at dots
  Path of(const std::string& name, const Path& path) const;

 private:
  std::unordered_set<std::string> files_{};
};

/// A leaf of nested state.
struct TreeLeaf {
  Path path;  ///< below the tree's root; empty = the root itself
  ValuePtr value;
};

/// One value of all leaves, in their order: a container with integer keys 0 to n - 1 is a list, any other a dict.
/// None if there are no leaves. Tuples become lists. A leaf below another leaf, or with the path of another, is left
/// out.
std::optional<Value> build_tree(std::span<const TreeLeaf> leaves);

/// The value of a text key of a dict, or null; also where `value` is null or no dict.
const Value* member(const Value* value, std::string_view key);
/// An integer, or a number that is one; a bool counts as none.
std::optional<std::int64_t> whole_number(const Value* value);
std::optional<double> real_number(const Value* value);
std::optional<bool> truth(const Value* value);
const std::string* text_of(const Value* value);
/// A part of a path as an integer: an index, or a text of decimal digits.
std::optional<std::uint64_t> index_of(const PathPart& part);

}  // namespace ckpt
