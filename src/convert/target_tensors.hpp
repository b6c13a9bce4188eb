#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "convert/write_request.hpp"

namespace ckpt {

/// The tensors of a request, with target names and dtypes. Holds references into the request and its source.
class TargetTensors {
 public:
  explicit TargetTensors(const WriteRequest& request);

  /// Number `selected` of WriteRequest::tensors with its name, dtype, role and shape in the target. `parameter` follows
  /// a renamed parameter; `path` is kept if the name is the source's, `true_dtype` if dtype and extent are.
  Tensor tensor(std::size_t selected) const;
  /// Names in the target by names in the source, of all tensors of the request.
  /// One thread.
  const std::unordered_map<std::string, std::string>& renamed() const;

 private:
  std::string parameter_name(const Tensor& source, const std::string& name) const;

  const WriteRequest& request_;
  mutable std::optional<std::unordered_map<std::string, std::string>> renamed_{};  // once asked for
};

}  // namespace ckpt
