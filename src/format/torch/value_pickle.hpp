#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "format/model/value.hpp"
#include "format/torch/pickle_writer.hpp"

namespace ckpt::torch {

/// Writes Values into a pickle: dicts, OrderedDicts, torch.Size, bytes, objects of any class. Sub-values that are
/// shared by pointer are written once. One object a pickle, because of those.
class ValuePickler {
 public:
  /// Writes a tensor (TensorPickler) and gives its memo index.
  using WriteTensor = std::function<pickle::MemoIndex(const TensorRef&)>;
  /// Whether a tensor is written: if not, its entry in a dict is left out, and elsewhere it becomes None.
  using HasTensor = std::function<bool(const TensorRef&)>;

  ValuePickler(pickle::Writer& out, HasTensor has_tensor, WriteTensor write_tensor)
      : out_(out), has_tensor_(std::move(has_tensor)), write_tensor_(std::move(write_tensor)) {}

  /// Depth is that of the value: at most 1000 if a reader made it.
  void value(const ValuePtr& value);

 private:
  void content(const Value& value);
  void list(const List& list);
  void dict(const Dict& dict);
  void object(const Opaque& object);
  void global(const std::string& dotted);
  bool is_left_out(const ValuePtr& value) const;

  pickle::Writer& out_;
  HasTensor has_tensor_;
  WriteTensor write_tensor_;
  pickle::MemoIndex last_ = 0;  // of the container or tensor that was written last
  std::unordered_map<const Value*, pickle::MemoIndex> shared_;
};

/// Why a value cannot be written as a pickle: the classes ("module.name") in it that no pickle can express, or with
/// `weights_only` those that torch.load(weights_only=True) refuses. Sorted; empty: it can.
enum class Loadable { anyhow, weights_only };
std::vector<std::string> unwritable_classes(const ValuePtr& value, Loadable loadable);

}  // namespace ckpt::torch
