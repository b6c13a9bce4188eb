#include "format/model/box.hpp"

#include <algorithm>

#include "format/checked.hpp"

namespace ckpt {

std::uint64_t volume(const Shape& size) {
  std::uint64_t out = 1;
  for (const std::uint64_t s : size) out *= s;
  return out;
}

std::uint64_t Chunk::volume() const {
  return flat ? flat->size() : ckpt::volume(box.size);
}

bool fits(const Box& box, const Shape& shape) {
  if (box.offset.size() != shape.size() || box.size.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (box.offset[d] > shape[d] || box.size[d] > shape[d] - box.offset[d]) return false;
  }
  return checked_volume(shape).has_value();
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  const std::size_t n = a.offset.size();
  Box out{Shape(n), Shape(n)};
  for (std::size_t d = 0; d < n; ++d) {
    const std::uint64_t begin = std::max(a.offset[d], b.offset[d]);
    const std::uint64_t end = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]);
    if (begin >= end) return std::nullopt;
    out.offset[d] = begin;
    out.size[d] = end - begin;
  }
  return out;
}

std::vector<std::int64_t> row_major_strides(const Shape& size) {
  std::vector<std::int64_t> strides(size.size());
  std::int64_t stride = 1;
  for (std::size_t d = size.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= static_cast<std::int64_t>(std::max<std::uint64_t>(size[d], 1));
  }
  return strides;
}

std::uint64_t linear_index(const Box& box, std::span<const std::uint64_t> point) {
  std::uint64_t index = 0;
  for (std::size_t d = 0; d < box.size.size(); ++d) index = index * box.size[d] + (point[d] - box.offset[d]);
  return index;
}

void split_flat(const Box& box, Extent flat, std::vector<Box>& out) {
  const std::size_t n = box.size.size();
  if (flat.begin >= flat.end) return;
  if (n == 0) {
    out.push_back(box);
    return;
  }
  // inner[d]: elements of one step along dimension d.
  std::vector<std::uint64_t> inner(n, 1);
  for (std::size_t d = n - 1; d-- > 0;) inner[d] = inner[d + 1] * box.size[d + 1];
  // Walks forward, each time taking the largest aligned slab that starts here and ends in the range: the slabs grow
  // from the innermost dimension to the outermost and shrink again, hence at most 2n - 1 of them.
  std::uint64_t at = flat.begin;
  while (at < flat.end) {
    std::size_t d = n - 1;
    while (d > 0 && at % inner[d - 1] == 0 && at + inner[d - 1] <= flat.end) --d;
    std::uint64_t steps = (flat.end - at) / inner[d];
    if (d > 0) {
      const std::uint64_t left_in_row = (inner[d - 1] - at % inner[d - 1]) / inner[d];
      steps = std::min(steps, left_in_row);
    }
    Box slab = box;
    std::uint64_t rest = at;
    for (std::size_t k = 0; k < n; ++k) {
      const std::uint64_t index = rest / inner[k];
      rest %= inner[k];
      if (k <= d) {
        slab.offset[k] = box.offset[k] + index;
        slab.size[k] = k == d ? steps : 1;
      }
    }
    out.push_back(std::move(slab));
    at += steps * inner[d];
  }
}

}  // namespace ckpt
