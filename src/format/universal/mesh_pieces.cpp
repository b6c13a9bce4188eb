#include "format/universal/mesh_pieces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "format/checked.hpp"
#include "format/hash.hpp"
#include "format/model/cut.hpp"

namespace ckpt::universal {
namespace {

Extent by_rule(const Layout::Cut& cut, std::uint64_t length, std::uint64_t part, std::uint64_t parts) {
  switch (cut.rule) {
    case Layout::Cut::Rule::ceil:
      return cut::chunk({.length = length, .part_count = parts}, part);
    case Layout::Cut::Rule::even:
      return cut::even({.length = length, .part_count = parts}, part);
    case Layout::Cut::Rule::points:
      break;
  }
  return {cut.points[part], cut.points[part + 1]};
}

void append(std::vector<Extent>& to, Extent range) {
  if (range.begin >= range.end) return;
  if (!to.empty() && to.back().end == range.begin) {
    to.back().end = range.end;
  } else {
    to.push_back(range);
  }
}

/// The ranges of the tensor at `local` in the concatenation of `ranges`.
void append_local(std::vector<Extent>& to, const std::vector<Extent>& ranges, Extent local) {
  std::uint64_t base = 0;
  for (const Extent& range : ranges) {
    if (base >= local.end) return;
    const std::uint64_t begin = std::max(base, local.begin);
    const std::uint64_t end = std::min(base + range.size(), local.end);
    if (begin < end) append(to, {range.begin + (begin - base), range.begin + (end - base)});
    base += range.size();
  }
}

std::uint64_t length_of(const std::vector<Extent>& ranges) {
  std::uint64_t length = 0;
  for (const Extent& range : ranges) length += range.size();
  return length;
}

/// Adds the part of a box that [first, last) of the local array's elements holds; `base` is the box's first.
void append_flat(std::vector<Chunk>& to, Box box, std::uint64_t base, Extent held) {
  const std::uint64_t elements = volume(box.size);
  const std::uint64_t begin = std::max(base, held.begin);
  const std::uint64_t end = std::min(base + elements, held.end);
  if (begin >= end) return;
  if (begin == base && end == base + elements) {
    to.push_back({.box = std::move(box)});
  } else {
    to.push_back({.box = std::move(box), .flat = Extent{begin - base, end - base}});
  }
}

/// The units by which replicas divide a chunk: rows, or elements of a flat range, as many at a time as make whole bytes
/// (one except for packed types).
struct Steps {
  std::size_t dim = 0;      ///< of the rows; the rank if a box has a single element
  std::uint64_t size = 1;   ///< rows or elements
  std::uint64_t count = 0;  ///< in the chunk
};

Steps steps_of(const Chunk& chunk, Dtype dtype) {
  const auto step = [&](std::uint64_t row_elements) {
    return 8 / std::gcd<std::uint64_t>(8, row_elements % 8 * dtype_bits(dtype));
  };
  const Shape& size = chunk.box.size;
  if (chunk.flat) return {.dim = 0, .size = step(1), .count = chunk.flat->size() / step(1)};
  Steps out;
  while (out.dim < size.size() && size[out.dim] == 1) ++out.dim;
  if (out.dim == size.size()) return out;
  std::uint64_t row_elements = 1;
  for (std::size_t d = out.dim + 1; d < size.size(); ++d) row_elements *= size[d];
  out.size = step(row_elements);
  out.count = size[out.dim] / out.size;
  return out;
}

/// The position of [needed.begin, needed.end) of the tensor in the concatenation of `ranges`: empty if it is not part
/// of it.
Extent local_of(const std::vector<Extent>& ranges, Extent needed) {
  Extent local{0, 0};
  std::uint64_t base = 0;
  for (const Extent& range : ranges) {
    const std::uint64_t begin = std::max(range.begin, needed.begin);
    const std::uint64_t end = std::min(range.end, needed.end);
    if (begin < end) {
      if (local.begin == local.end) local.begin = base + (begin - range.begin);
      local.end = base + (end - range.begin);
    }
    base += range.size();
  }
  return local;
}

/// The parts of [0, length) that hold any of `local`, which is not empty.
Extent parts_of(const Layout::Cut& cut, std::uint64_t length, std::uint64_t parts, Extent local) {
  const cut::Split split{.length = length, .part_count = parts};
  switch (cut.rule) {
    case Layout::Cut::Rule::ceil:
      return {cut::part_of_chunk(split, local.begin), cut::part_of_chunk(split, local.end - 1) + 1};
    case Layout::Cut::Rule::even:
      return {cut::part_of_even(split, local.begin), cut::part_of_even(split, local.end - 1) + 1};
    case Layout::Cut::Rule::points:
      break;
  }
  // The last point at or below an element begins its part.
  const auto part = [&](std::uint64_t at) {
    const auto above = std::upper_bound(cut.points.begin(), cut.points.end(), at);
    return static_cast<std::uint64_t>(above - cut.points.begin()) - 1;
  };
  return {part(local.begin), part(local.end - 1) + 1};
}

}  // namespace

LocalDims whole_dims(const Shape& shape) {
  LocalDims dims(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 0) dims[d].push_back({0, shape[d]});
  }
  return dims;
}

std::uint64_t part_count(const Mesh& mesh, std::span<const std::uint32_t> axes) {
  std::uint64_t count = 1;
  for (const std::uint32_t axis : axes) count *= mesh.axes[axis].size;
  return count;
}

std::uint64_t part_number(const Mesh& mesh, std::span<const std::uint32_t> axes,
                          std::span<const std::uint64_t> coordinates) {
  std::uint64_t part = 0;
  for (const std::uint32_t axis : axes) part = part * mesh.axes[axis].size + coordinates[axis];
  return part;
}

void set_part(const Mesh& mesh, std::span<const std::uint32_t> axes, std::uint64_t part,
              std::span<std::uint64_t> coordinates) {
  for (std::size_t i = axes.size(); i-- > 0;) {
    const std::uint64_t size = mesh.axes[axes[i]].size;
    coordinates[axes[i]] = part % size;
    part /= size;
  }
}

bool is_whole_bytes(const Chunk& chunk, const Tensor& tensor) {
  const std::uint64_t bits = dtype_bits(tensor.dtype);
  const auto whole = [&](std::uint64_t elements) { return elements % 8 * bits % 8 == 0; };
  if (chunk.flat && (!whole(chunk.flat->begin) || !whole(chunk.flat->end))) return false;
  std::uint64_t inner = 1;
  for (std::size_t d = tensor.shape.size(); d-- > 0;) {
    if (chunk.box.size[d] != tensor.shape[d]) {
      return whole(chunk.box.offset[d] * inner) && whole(chunk.box.size[d] * inner) &&
             (d == 0 || whole(tensor.shape[d] * inner));
    }
    inner *= tensor.shape[d];
  }
  return true;
}

std::vector<Extent> cut_ranges(const std::vector<Extent>& ranges, const Layout::Cut& cut, std::uint64_t part,
                               std::uint64_t parts) {
  std::vector<Extent> out;
  if (cut.segments.empty()) {
    append_local(out, ranges, by_rule(cut, length_of(ranges), part, parts));
    return out;
  }
  // Only the first cut of a dimension has segments, so local indices are those of the tensor.
  std::uint64_t base = 0;
  for (const std::uint64_t segment : cut.segments) {
    const Extent held = by_rule(cut, segment, part, parts);
    append(out, {base + held.begin, base + held.end});
    base += segment;
  }
  return out;
}

Extent parts_that_meet(const std::vector<Extent>& ranges, const Layout::Cut& cut, std::uint64_t parts, Extent needed) {
  if (cut.segments.empty()) {
    const Extent local = local_of(ranges, needed);
    return local.size() == 0 ? Extent{} : parts_of(cut, length_of(ranges), parts, local);
  }
  Extent out;
  std::uint64_t base = 0;
  for (const std::uint64_t segment : cut.segments) {
    const std::uint64_t begin = std::max(base, needed.begin);
    const std::uint64_t end = std::min(base + segment, needed.end);
    if (begin < end) {
      const Extent some = parts_of(cut, segment, parts, {begin - base, end - base});
      out = out.size() == 0 ? some : Extent{std::min(out.begin, some.begin), std::max(out.end, some.end)};
    }
    base += segment;
  }
  return out;
}

std::uint64_t next_part(const Layout::Cut& cut, std::uint64_t part) {
  if (cut.rule != Layout::Cut::Rule::points) return part + 1;
  const auto from = cut.points.begin() + static_cast<std::ptrdiff_t>(part) + 1;
  const auto beyond = std::upper_bound(from, cut.points.end(), *from);
  return static_cast<std::uint64_t>(beyond - cut.points.begin()) - 1;
}

Result<std::vector<Chunk>> local_chunks(const LocalDims& dims, const Layout& layout, std::uint64_t begin,
                                        std::uint64_t flat_part) {
  std::vector<Chunk> out;
  const auto is_empty = [](const std::vector<Extent>& ranges) { return ranges.empty(); };
  if (std::any_of(dims.begin(), dims.end(), is_empty)) return out;
  std::size_t boxes = 1;
  for (const std::vector<Extent>& ranges : dims) {
    boxes *= ranges.size();
    if (boxes > kMaxBoxes) return fail(Errc::corrupt, fmt::format("more than {} boxes at one writer", kMaxBoxes));
  }
  Extent held{0, ~std::uint64_t{0}};
  if (layout.flat) {
    // check_layout has seen that the product of all parts fits.
    const auto bound = [&](std::uint64_t part) {
      const std::uint64_t at = part * layout.flat->part;
      return at <= begin ? 0 : at - begin;
    };
    held = {bound(flat_part), bound(flat_part + 1)};
  }
  std::uint64_t base = 0;
  std::vector<std::size_t> at(dims.size(), 0);
  for (std::size_t n = 0; n < boxes; ++n) {
    Box box{Shape(dims.size()), Shape(dims.size())};
    for (std::size_t d = 0; d < dims.size(); ++d) {
      box.offset[d] = dims[d][at[d]].begin;
      box.size[d] = dims[d][at[d]].size();
    }
    const std::uint64_t elements = volume(box.size);
    append_flat(out, std::move(box), base, held);
    base += elements;
    for (std::size_t d = dims.size(); d-- > 0;) {
      if (++at[d] < dims[d].size()) break;
      at[d] = 0;
    }
  }
  return out;
}

Replicas::Replicas(const Layout& layout) {
  for (std::uint32_t axis = 0; axis < layout.mesh.axes.size(); ++axis) {
    const auto is_axis = [&](std::uint32_t other) { return other == axis; };
    const auto at =
        std::find_if(layout.at.begin(), layout.at.end(), [&](const Layout::At& a) { return a.axis == axis; });
    const bool cut = std::any_of(layout.cuts.begin(), layout.cuts.end(), [&](const Layout::Cut& c) {
      return std::any_of(c.axes.begin(), c.axes.end(), is_axis);
    });
    const bool flat = layout.flat && std::any_of(layout.flat->axes.begin(), layout.flat->axes.end(), is_axis);
    if (cut || flat) continue;
    ReplicaAxis replica{.axis = axis, .size = layout.mesh.axes[axis].size};
    if (at != layout.at.end()) {
      replica.indices = &at->indices;
      replica.size = at->indices.size();
    }
    axes.push_back(replica);
    count *= replica.size;
  }
}

std::uint64_t Replicas::number(std::span<const std::uint64_t> coordinates) const {
  std::uint64_t out = 0;
  for (const ReplicaAxis& replica : axes) {
    std::uint64_t index = coordinates[replica.axis];
    if (replica.indices != nullptr) {
      const auto at = std::lower_bound(replica.indices->begin(), replica.indices->end(), index);
      index = static_cast<std::uint64_t>(at - replica.indices->begin());
    }
    out = out * replica.size + index;
  }
  return out;
}

void Replicas::set(std::uint64_t number, std::span<std::uint64_t> coordinates) const {
  for (std::size_t i = axes.size(); i-- > 0;) {
    const std::uint64_t index = number % axes[i].size;
    coordinates[axes[i].axis] = axes[i].indices == nullptr ? index : (*axes[i].indices)[index];
    number /= axes[i].size;
  }
}

Extent span_in(const Box& box, const Box& needed) {
  const auto common = intersect(box, needed);
  if (!common) return {};
  Shape last = common->offset;
  for (std::size_t d = 0; d < last.size(); ++d) last[d] += common->size[d] - 1;
  return {linear_index(box, common->offset), linear_index(box, last) + 1};
}

bool is_shared(const Chunk& chunk, Dtype dtype) {
  return chunk.volume() * dtype_bits(dtype) >= kSharedChunkBytes * 8;
}

Chunk share_of(const Chunk& chunk, Dtype dtype, std::uint64_t replica, std::uint64_t replica_count) {
  const Steps steps = steps_of(chunk, dtype);
  const Extent mine = cut::even({.length = steps.count, .part_count = replica_count}, replica);
  const Extent held{mine.begin * steps.size, mine.end * steps.size};
  Chunk out = chunk;
  if (chunk.flat) {
    out.flat = Extent{chunk.flat->begin + held.begin, chunk.flat->begin + held.end};
  } else if (steps.dim < chunk.box.size.size()) {
    out.box.offset[steps.dim] += held.begin;
    out.box.size[steps.dim] = held.size();
  }
  return out;
}

std::uint64_t sharer_count(const Chunk& chunk, Dtype dtype, std::uint64_t replica_count) {
  return std::min(replica_count, steps_of(chunk, dtype).count);
}

Extent sharers(const Chunk& chunk, Dtype dtype, std::uint64_t replica_count, const Box& needed) {
  const Steps steps = steps_of(chunk, dtype);
  Extent held;  // steps of the chunk
  if (chunk.flat) {
    const Extent elements = span_in(chunk.box, needed);
    const std::uint64_t begin = std::max(elements.begin, chunk.flat->begin);
    const std::uint64_t end = std::min(elements.end, chunk.flat->end);
    if (begin >= end) return {};
    held = {(begin - chunk.flat->begin) / steps.size, (end - 1 - chunk.flat->begin) / steps.size + 1};
  } else {
    const auto common = intersect(chunk.box, needed);
    if (!common || steps.dim == chunk.box.size.size()) return {};
    const std::uint64_t begin = common->offset[steps.dim] - chunk.box.offset[steps.dim];
    held = {begin / steps.size, (begin + common->size[steps.dim] - 1) / steps.size + 1};
  }
  const cut::Split split{.length = steps.count, .part_count = replica_count};
  return {cut::part_of_even(split, held.begin), cut::part_of_even(split, held.end - 1) + 1};
}

std::uint64_t owner_of(const Tensor& tensor, std::uint64_t replica_count) {
  return hash64(tensor.name) % replica_count;
}

}  // namespace ckpt::universal
