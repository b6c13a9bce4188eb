#pragma once

#include <string_view>
#include <vector>

#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"
#include "format/universal/manifest.hpp"

namespace ckpt {

/// The tensors of a training job that follow layouts: declared once, identically on every rank.
struct Model {
  std::vector<universal::Layout> layouts{};
  std::vector<universal::TensorRow> rows{};  ///< sorted by name; `layout` is an index into `layouts`
  Hash128 hash{};                            ///< over all of it: ranks compare this

  /// Sorts, checks every row against its layout, hashes.
  /// errors  usage, with the tensor
  static Result<Model> make(std::vector<universal::Layout> layouts, std::vector<universal::TensorRow> rows);
  /// Nothing if there is no such tensor.
  const universal::TensorRow* find(std::string_view name) const;
};

/// Refuses anything that readers of checkpoints would refuse.
/// errors  usage, with the tensor
Result<> check_tensor(const Tensor& tensor);

}  // namespace ckpt
