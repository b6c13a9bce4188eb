#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "convert/torch_target.hpp"
#include "format/model/box.hpp"
#include "format/model/model.hpp"
#include "format/torch/pickle_writer.hpp"
#include "format/torch/tensor_pickle.hpp"

/// A torch.save file of a target that is laid out by ranks: a value whose tensors are storages of the archive.
namespace ckpt {

// Values, in short.
ValuePtr none_value();
ValuePtr value_of(bool value);
ValuePtr value_of(std::int64_t value);
ValuePtr value_of(std::uint64_t value);
ValuePtr value_of(double value);
ValuePtr value_of(std::string_view text);
ValuePtr value_of(const char* text) = delete;  ///< it would be a bool
ValuePtr list_of(std::vector<ValuePtr> items, List::Kind kind = List::Kind::list);
/// torch.Size.
ValuePtr size_of(const Shape& shape);

/// A dict with text keys, in the order in which they are set; a key that is set again keeps its place.
class DictValue {
 public:
  void set(std::string_view key, ValuePtr value);
  bool has(std::string_view key) const { return at_.contains(std::string(key)); }
  bool empty() const { return dict_.items.empty(); }
  ValuePtr finish() &&;

 private:
  Dict dict_{};
  std::unordered_map<std::string, std::size_t> at_{};
};

/// A part of a tensor of the file and the source tensor's elements that it is.
struct SourceRun {
  std::uint32_t tensor = 0;  ///< index into Map::tensors
  Extent elements{};         ///< of it, row-major
  std::uint64_t offset = 0;  ///< elements from the begin of the file's tensor
};

/// Collects the tensors of one file, then writes it. The map outlives it.
class StateArchive {
 public:
  StateArchive(const Map& source, const std::unordered_map<std::string, std::uint32_t>& by_name)
      : source_(source), by_name_(by_name) {}

  /// A whole source tensor, cast to `dtype`. A repeated request with the same dtype returns the same storage: ties.
  Result<ValuePtr> whole(std::uint32_t tensor, Dtype dtype);
  /// A 1-D tensor of `elements`, joined from runs; the rest is zero.
  ValuePtr flat(std::uint64_t elements, Dtype dtype, std::span<const SourceRun> runs);
  /// A tensor of zeros, or without elements.
  ValuePtr zeros(const Shape& shape, Dtype dtype);
  /// A 0-d tensor of one float32.
  ValuePtr scalar(float value);

  /// A storage of zeros, whose number is returned: tensors are put into it, and others are views of it.
  std::size_t storage(std::uint64_t elements, Dtype dtype);
  /// Puts a box of a source tensor there, row-major, `offset` elements from its begin.
  void put(std::size_t storage, std::uint64_t offset, std::uint32_t tensor, Box box);
  /// A dense tensor that begins `offset` elements from the begin of a storage.
  ValuePtr view(std::size_t storage, std::uint64_t offset, Shape shape);

  /// The file. Tensors that `root` refers to by their names in the map are whole storages of the file; those that the
  /// map lacks are left out.
  ///
  /// path    below the target's root
  /// errors  unsupported: a tensor that torch has no type for
  Result<TargetFile> finish(std::string path, const ValuePtr& root, const std::string& id);

 private:
  struct Stored {
    std::size_t storage = 0;
    std::string_view dtype;
    Shape shape;
    std::uint64_t offset = 0;  // elements
  };
  ValuePtr add(Stored stored, TorchStorage storage);
  ValuePtr reference(Stored stored);
  Result<pickle::MemoIndex> write_tensor(torch::TensorPickler& tensors, const std::string& name);

  const Map& source_;
  const std::unordered_map<std::string, std::uint32_t>& by_name_;
  std::vector<Stored> stored_{};
  std::vector<TorchStorage> storages_{};
  std::unordered_map<std::size_t, Dtype> dtypes_{};         // of storages for views
  std::unordered_map<std::uint64_t, std::size_t> whole_{};  // tensor and dtype -> index into stored_
};

}  // namespace ckpt
