#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/model/box.hpp"
#include "format/model/dtype.hpp"
#include "format/result.hpp"
#include "format/torch/pickle_writer.hpp"

namespace ckpt::torch {

/// torch's name of an element type ("float32", "float8_e4m3fn", "complex128", "float4_e2m1fn_x2"); empty where torch
/// has none (F6).
///
/// true_dtype  Tensor::true_dtype: "complex128" and "complex32" are stored as pairs of F64 and F16
std::string_view torch_dtype(Dtype dtype, std::string_view true_dtype = {});

/// A tensor as torch counts it: a pair of real numbers is one complex one, a pair of F4 elements one byte.
struct TorchForm {
  std::string_view dtype;  ///< torch's name
  Shape shape{};
  bool is_complex = false;
};
/// true_dtype  as fits_true_dtype allows it
/// errors      unsupported, with the tensor's name: torch has no such type, or F4 rows are of an odd length
Result<TorchForm> torch_form(const std::string& name, Dtype dtype, std::string_view true_dtype, Shape shape);

/// A tensor as a view of a storage.
struct StoredTensor {
  std::uint32_t storage = 0;             ///< its number K: entry `data/K`
  std::uint64_t storage_bytes = 0;       ///< of the whole storage
  std::string_view dtype = "float32";    ///< torch's name
  std::uint64_t offset = 0;              ///< elements, of the first one in the storage
  Shape shape{};                         ///< as torch sees it: complex elements, pairs of F4
  std::vector<std::uint64_t> strides{};  ///< elements; empty = dense, row-major
  bool requires_grad = false;
};

/// Writes tensors into a pickle as torch.save does: `_rebuild_tensor_v2` of a typed storage; `_rebuild_tensor_v3` of an
/// untyped one where torch has no storage class for the element type (unsigned integers over 8 bits, float8, float4).
/// Storages are on the CPU. Views of one storage must have one element type (torch.load gives all that of the first).
class TensorPickler {
 public:
  explicit TensorPickler(pickle::Writer& out) : out_(out) {}
  /// The tensor, as a value; its memo index.
  pickle::MemoIndex tensor(const StoredTensor& tensor);
  /// The tensor as a torch.nn.Parameter.
  pickle::MemoIndex parameter(const StoredTensor& tensor);
  /// torch.Size(shape).
  pickle::MemoIndex size(const Shape& shape);
  /// An OrderedDict without items.
  pickle::MemoIndex empty_ordered_dict();

 private:
  pickle::Writer& out_;
  std::unordered_map<std::uint32_t, pickle::MemoIndex> keys_;  // of storages
};

/// Row-major strides of a shape, in elements, as torch computes them: a dimension of no elements counts as one.
std::vector<std::uint64_t> dense_strides(const Shape& shape);

}  // namespace ckpt::torch
