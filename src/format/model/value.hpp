#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ckpt {

/// One step from the root of nested state to a value: a key or a list index.
using PathPart = std::variant<std::string, std::int64_t>;
using Path = std::vector<PathPart>;

/// A part of a path as text: the key, or the index in decimal.
std::string part_text(const PathPart& part);
/// The dotted name of a path (no escaping).
std::string dotted(const Path& path);
/// The same with '%' as %25, '.' inside a part as %2E and non-UTF-8 bytes as %XX: unique for every path.
std::string dotted_escaped(const Path& path);
/// True when splitting `name` at dots gives `path` (all parts text).
bool splits_to(std::string_view name, const Path& path);
/// The path that a name splits to.
Path split_at_dots(std::string_view name);
/// The path of what gets a new name: wrappers that are stripped or added are levels of their own, any other name is one
/// level.
Path renamed_path(const Path& path, const std::string& old_name, const std::string& new_name);

/// A Python value, inert. Shared sub-values are copied by pointer, never by content.
struct Value;
using ValuePtr = std::shared_ptr<const Value>;

struct None {
  bool operator==(const None&) const = default;
};
struct BigInt {
  std::string decimal;  ///< outside int64, as text with sign
  bool operator==(const BigInt&) const = default;
};
struct Bytes {
  std::string data;
  bool operator==(const Bytes&) const = default;
};
struct List {
  enum class Kind : std::uint8_t { list, tuple, set } kind = Kind::list;
  std::vector<ValuePtr> items;
  bool is_special = false;  ///< a tuple that is a torch.Size, a set that is frozen
};
struct Dict {
  std::vector<std::pair<ValuePtr, ValuePtr>> items;  ///< in order
  enum class Kind : std::uint8_t { plain, ordered, counter, with_default } kind = Kind::plain;
  ValuePtr attributes{};  ///< of the object, as `_metadata` of a module's state dict; or null
  ValuePtr factory{};     ///< of a defaultdict; or null
};
/// An object of an unknown class: never constructed, kept as described by its pickle.
struct Opaque {
  std::string global;      ///< "module.name"
  ValuePtr args;           ///< may be null
  ValuePtr state;          ///< may be null
  bool is_new = false;     ///< made by the class's __new__, not by a call
  bool has_items = false;  ///< `state` is {"state": ..., "items": ...}, of a subclass of list or dict
};
/// A tensor inside a structure, by the name it has in the map.
struct TensorRef {
  std::string name;
  bool is_parameter = false;  ///< torch.nn.Parameter
  bool requires_grad = false;
  bool operator==(const TensorRef&) const = default;
};

struct Value {
  std::variant<None, bool, std::int64_t, BigInt, double, std::string, Bytes, List, Dict, Opaque, TensorRef> v{};
};

/// Whether its values nest at most `levels` deep, itself the first. True if it expands to more than `most` values, as
/// the depth is then unknown.
bool nests_within(const Value& value, std::size_t levels, std::size_t most);

}  // namespace ckpt
