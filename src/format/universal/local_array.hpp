#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/model/box.hpp"
#include "format/model/dtype.hpp"

namespace ckpt {

/// The position of one of a rank's chunks in its local array of a tensor.
struct LocalPart {
  std::size_t chunk = 0;
  std::uint64_t offset = 0;             ///< bytes
  std::vector<std::int64_t> strides{};  ///< elements, one per dimension; empty: dense
  std::size_t dense_dim = 0;            ///< with strides: from this dimension on the chunk's elements are contiguous
};

/// Bytes of chunks, of a dtype whose groups they do not cut.
std::uint64_t chunk_bytes(std::span<const Chunk> chunks, Dtype dtype);

/// A rank's local array: flat ranges one after another; boxes as a grid that is one row-major array, each at its own
/// place in every dimension.
///
/// held     of universal::held_chunks
std::vector<LocalPart> local_parts(std::span<const Chunk> held, Dtype dtype);

}  // namespace ckpt
