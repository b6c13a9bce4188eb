#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/box.hpp"
#include "format/dtype.hpp"

namespace ckpt {

/// Where one of the chunks that a rank holds stands in its local array of a tensor.
struct LocalPart {
  std::size_t chunk = 0;
  std::uint64_t offset = 0;             ///< bytes
  std::vector<std::int64_t> strides{};  ///< elements, one a dimension; empty = dense
  std::size_t dim = 0;                  ///< with strides: along which the boxes of the array follow each other
};

/// Bytes of chunks, of a dtype whose groups they do not cut.
std::uint64_t chunk_bytes(std::span<const Chunk> chunks, Dtype dtype);

/// A rank's local array: flat ranges one after another; boxes as parts of one row-major array, along the dimension in
/// which they differ.
std::vector<LocalPart> local_parts(std::span<const Chunk> held, Dtype dtype);

}  // namespace ckpt
