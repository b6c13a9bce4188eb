#pragma once

#include <cstdint>
#include <optional>

#include "format/model/box.hpp"
#include "format/model/model.hpp"

/// Forms of one part of a tensor: a piece of a large box or of a small one, a run of the tensor, and, for a packed
/// dtype, bytes.
namespace ckpt {

/// The chunk as a piece of the smallest box that holds it, without `flat` if it is all of that box. Two chunks hold the
/// same elements exactly if their tightest forms are equal. The chunk must be inside its tensor.
Chunk tightest(Chunk chunk);

/// The tightest form, as a range of the whole tensor if it is one: most cuts give rows, and plans copy these without
/// boxes.
Chunk as_run(Chunk chunk, const Shape& shape);

/// The first element of a chunk that is not empty, in the row-major order of the tensor.
std::uint64_t first_element(const Chunk& chunk, const Shape& shape);

/// A tensor of a packed dtype (F4, F6) as an array of bytes: the innermost dimensions are joined until rows are whole
/// bytes. The tensor must have passed tensor_bytes.
Shape byte_shape(const Tensor& tensor);

/// A chunk of such a tensor as a chunk of byte_shape; nothing if one of its runs begins or ends inside a byte.
std::optional<Chunk> in_bytes(const Chunk& chunk, const Tensor& tensor);

}  // namespace ckpt
