#pragma once

#include <span>
#include <string_view>

namespace ckpt {

/// Whether the names of a model's tensors are in the order of their bytes, and not because the model has them so: they
/// passed through a file that sorts names (safetensors). torch registers `weight` before `bias` and counts layers 2, 10;
/// a file that sorts has bias, weight and 10, 2. Other sorted neighbours may be chance, unless there are several.
bool is_sorted_by_name(std::span<const std::string_view> names);

}  // namespace ckpt
