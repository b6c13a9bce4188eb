#include "writers/local_array.hpp"

#include <algorithm>

namespace ckpt {
namespace {

/// The dimension along which the boxes of a local array follow each other: the only one in which they differ.
std::size_t joined_dim(std::span<const Chunk> held) {
  for (std::size_t d = 0; d < held[0].box.size.size(); ++d) {
    if (held[0].box.offset[d] != held[1].box.offset[d]) return d;
  }
  return 0;
}

}  // namespace

std::uint64_t chunk_bytes(std::span<const Chunk> chunks, Dtype dtype) {
  std::uint64_t elements = 0;
  for (const Chunk& chunk : chunks) elements += chunk.volume();
  return elements * dtype_bits(dtype) / 8;
}

std::vector<LocalPart> local_parts(std::span<const Chunk> held, Dtype dtype) {
  std::vector<LocalPart> parts(held.size());
  const bool flat = std::any_of(held.begin(), held.end(), [](const Chunk& c) { return c.flat.has_value(); });
  const std::size_t dim = held.size() > 1 && !flat ? joined_dim(held) : 0;
  if (dim == 0) {
    std::uint64_t elements = 0;
    for (std::size_t i = 0; i < held.size(); ++i) {
      parts[i] = {.chunk = i, .offset = elements * dtype_bits(dtype) / 8};
      elements += held[i].volume();
    }
    return parts;
  }
  Shape local = held[0].box.size;
  local[dim] = 0;
  for (const Chunk& chunk : held) local[dim] += chunk.box.size[dim];
  const std::vector<std::int64_t> strides = row_major_strides(local);
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < held.size(); ++i) {
    const std::uint64_t elements = before * static_cast<std::uint64_t>(strides[dim]);
    parts[i] = {.chunk = i, .offset = elements * dtype_bits(dtype) / 8, .strides = strides, .dim = dim};
    before += held[i].box.size[dim];
  }
  return parts;
}

}  // namespace ckpt
