#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "format/result.hpp"

namespace ckpt {

/// Sizes along each dimension, outermost first. Empty for a 0-d tensor.
using Shape = std::vector<std::uint64_t>;

/// A half-open hyper-rectangle inside a tensor: element i is in it when offset[d] <= i[d] < offset[d] + size[d].
struct Box {
  Shape offset;
  Shape size;

  static Box whole(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }
  bool operator==(const Box&) const = default;
};

/// A half-open range of elements.
struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::uint64_t size() const { return end - begin; }
  bool operator==(const Extent&) const = default;
};

/// The part of a tensor that one place holds: a box, or, where `flat` is set, the elements [begin, end) of the
/// row-major linearisation of that box.
struct Chunk {
  Box box;
  std::optional<Extent> flat{};

  std::uint64_t volume() const;
  bool operator==(const Chunk&) const = default;
};

/// Elements of a box; the box must have been validated (no overflow).
std::uint64_t volume(const Shape& size);

/// True if the box is inside the shape; also checks ranks and overflow.
bool fits(const Box& box, const Shape& shape);

/// The common part of two boxes of equal rank, or nothing.
std::optional<Box> intersect(const Box& a, const Box& b);

/// Cuts the elements [flat.begin, flat.end) of the row-major linearisation of `box` into boxes, in order: at most
/// 2n - 1 for an n-D box. Offsets are those of the tensor, as in `box`.
void split_flat(const Box& box, Extent flat, std::vector<Box>& out);

/// The row-major index of a point of the box inside the box's own linearisation.
std::uint64_t linear_index(const Box& box, std::span<const std::uint64_t> point);

/// Row-major strides, in elements, of an array of this shape.
std::vector<std::int64_t> row_major_strides(const Shape& size);

}  // namespace ckpt
