#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "convert/dcp/state_entries.hpp"
#include "format/model/model.hpp"

namespace ckpt::dcp {

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
  /// A plain value, as the leaves into which torch flattens it. Leaves that are not plain values, and whose keys are
  /// taken, are recorded as left out.
  void add_value(const Path& path, const Value& value);

  bool has(const std::string& key) const { return keys_.contains(key); }
  std::vector<StateEntry>& entries() { return entries_; }
  const std::vector<std::string>& lost_objects() const { return lost_objects_; }

 private:
  Result<> take(StateEntry entry);

  const WriteRequest& request_;
  std::vector<StateEntry> entries_{};
  std::unordered_set<std::string> keys_{};
  std::vector<std::string> lost_objects_{};
};

}  // namespace ckpt::dcp
