#pragma once

#include <cstdint>
#include <optional>

#include "format/model/box.hpp"
#include "format/model/model.hpp"

/// One and the same part of a tensor can be described in several ways: as a piece of a large box or of a small one, as
/// a run of the tensor, and, where the dtype is packed, in bytes.
namespace ckpt {

/// The chunk as a piece of the smallest box that holds it, without `flat` where it is all of that box. Two chunks hold
/// the same elements exactly if their tightest forms are equal. The chunk must lie inside its tensor.
Chunk tightest(Chunk chunk);

/// The tightest form, as a range of the whole tensor where it is one: rows are what most cuts give, and what plans copy
/// without looking at boxes.
Chunk as_run(Chunk chunk, const Shape& shape);

/// The first element of a chunk that is not empty, in the row-major order of the tensor.
std::uint64_t first_element(const Chunk& chunk, const Shape& shape);

/// A tensor of a packed dtype (F4, F6) as an array of bytes: the innermost dimensions are joined as far as it takes to
/// make rows of whole bytes. The tensor must have passed tensor_bytes.
Shape byte_shape(const Tensor& tensor);

/// A chunk of such a tensor as a chunk of byte_shape; nothing where one of its runs begins or ends inside a byte.
std::optional<Chunk> in_bytes(const Chunk& chunk, const Tensor& tensor);

}  // namespace ckpt
