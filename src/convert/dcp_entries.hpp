#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "convert/stored_type.hpp"
#include "convert/write_request.hpp"
#include "format/model/model.hpp"
#include "format/model/object_tree.hpp"

namespace ckpt::dcp {

/// One entry of the state dict that a DCP target holds, before it is cut.
struct StateEntry {
  std::string fqn;
  Path path{};  ///< never empty
  enum class From : std::uint8_t {
    tensor,   ///< elements of a tensor of the source: `tensor`, `dtype`, `shape`, `type`
    scalar,   ///< the only element of a source tensor of any shape, as a 0-dimensional tensor
    literal,  ///< a number that the source does not have as a tensor: `dtype` and its `bytes`, without dimensions
    item,     ///< an item of bytes that the source holds as such: `tensor`, a blob of shape.front() bytes
    object,   ///< a Python object: `bytes` is its pickle
  } from = From::tensor;
  std::uint32_t tensor = 0;  ///< index into Map::tensors
  std::string dtype{};       ///< torch's name without "torch."; "" for items and objects
  Shape shape{};             ///< as torch counts elements
  StoredType type{};         ///< how torch's elements are the model's
  std::string bytes{};
};

struct StateEntries {
  std::vector<StateEntry> entries{};  ///< keys are unique
  std::vector<Finding> notes{};       ///< things that this format cannot hold, decisions
};

/// Entries of a state dict while they are collected; each key once.
class EntrySet {
 public:
  explicit EntrySet(const WriteRequest& request) : request_(request) {}

  /// A tensor of the source as `tensor` describes it for the target (dtype, shape, true dtype).
  /// errors  unsupported: torch has no such element type; usage: the key is taken
  Result<> add_tensor(std::uint32_t index, const Tensor& tensor, std::string key, Path path);
  /// A tensor of one element as one without dimensions.
  Result<> add_scalar(std::uint32_t index, const Tensor& tensor, Path path);
  /// A float32 tensor without dimensions.
  Result<> add_number(float value, Path path);
  /// An item of bytes that the source holds as such.
  Result<> add_item(std::uint32_t index, std::uint64_t bytes, std::string key, Path path);
  /// Leaves of nested state, with the entries so far as parts of it: values of one list or tuple are one entry again.
  void add_leaves(std::span<const TreeLeaf> values);
  /// A plain value, as the leaves into which torch flattens it. Leaves that are not plain values, and whose keys are
  /// taken, are recorded as left out.
  void add_value(const Path& path, const Value& value);

  bool has(const std::string& key) const { return keys_.contains(key); }
  /// The entries, with paths from which torch rebuilds containers whose keys join to the entries' own: a list has the
  /// indices 0, 1, ..., and the root is a dict.
  std::vector<StateEntry> take_entries();
  const std::vector<std::string>& lost_objects() const { return lost_objects_; }

 private:
  Result<> take(StateEntry entry);

  const WriteRequest& request_;
  std::vector<StateEntry> entries_{};
  std::unordered_set<std::string> keys_{};
  std::vector<std::string> lost_objects_{};
};

}  // namespace ckpt::dcp
