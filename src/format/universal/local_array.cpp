#include "format/universal/local_array.hpp"

#include <algorithm>
#include <map>

namespace ckpt {
namespace {

/// One dimension of a local array: the position in it of a range of the tensor, by the range's begin.
struct LocalDim {
  std::map<std::uint64_t, std::uint64_t> places{};
  std::uint64_t length = 0;
};

/// The ranges of a dimension that the boxes of a grid hold, end to end.
LocalDim joined(std::span<const Chunk> held, std::size_t dim) {
  LocalDim out;
  for (const Chunk& chunk : held) out.places.emplace(chunk.box.offset[dim], chunk.box.size[dim]);
  for (auto& [begin, place] : out.places) {
    const std::uint64_t size = place;
    place = out.length;
    out.length += size;
  }
  return out;
}

std::vector<LocalPart> one_after_another(std::span<const Chunk> held, Dtype dtype) {
  std::vector<LocalPart> parts;
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < held.size(); ++i) {
    parts.push_back({.chunk = i, .offset = elements * dtype_bits(dtype) / 8});
    elements += held[i].volume();
  }
  return parts;
}

}  // namespace

std::uint64_t chunk_bytes(std::span<const Chunk> chunks, Dtype dtype) {
  std::uint64_t elements = 0;
  for (const Chunk& chunk : chunks) elements += chunk.volume();
  return elements * dtype_bits(dtype) / 8;
}

std::vector<LocalPart> local_parts(std::span<const Chunk> held, Dtype dtype) {
  const bool flat = std::any_of(held.begin(), held.end(), [](const Chunk& c) { return c.flat.has_value(); });
  if (flat || held.size() < 2) return one_after_another(held, dtype);
  std::vector<LocalDim> dims;
  Shape local;
  for (std::size_t d = 0; d < held[0].box.size.size(); ++d) local.push_back(dims.emplace_back(joined(held, d)).length);
  const std::vector<std::int64_t> strides = row_major_strides(local);
  std::vector<LocalPart> parts;
  for (std::size_t i = 0; i < held.size(); ++i) {
    const Box& box = held[i].box;
    std::uint64_t elements = 0;
    for (std::size_t d = 0; d < local.size(); ++d) {
      elements += dims[d].places.at(box.offset[d]) * static_cast<std::uint64_t>(strides[d]);
    }
    LocalPart& part = parts.emplace_back(LocalPart{.chunk = i, .offset = elements * dtype_bits(dtype) / 8});
    std::size_t dense = local.size() - 1;
    while (dense > 0 && box.size[dense] == local[dense]) --dense;
    const bool one_run = std::all_of(box.size.begin(), box.size.begin() + static_cast<std::ptrdiff_t>(dense),
                                     [](std::uint64_t size) { return size == 1; });
    if (one_run) continue;
    part.strides = strides;
    part.dense_dim = dense;
  }
  return parts;
}

}  // namespace ckpt
