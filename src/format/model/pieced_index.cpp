#include "format/model/pieced_index.hpp"

#include <algorithm>
#include <utility>

#include "format/model/chunk_form.hpp"

namespace ckpt {
namespace {

Extent span_of(const Box& box, const Shape& shape) {
  Shape last = box.offset;
  for (std::size_t d = 0; d < last.size(); ++d) last[d] += box.size[d] - 1;
  const Box whole = Box::whole(shape);
  return {linear_index(whole, box.offset), linear_index(whole, last) + 1};
}

/// The part of a piece that may hold some of `elements`: fewer steps along its first dimension of more than one.
TensorPiece narrowed(const TensorPiece& piece, const Shape& shape, Extent span, Extent elements) {
  const auto wide = std::ranges::find_if(piece.to.size, [](std::uint64_t size) { return size > 1; });
  if (wide == piece.to.size.end()) return piece;
  const auto d = static_cast<std::size_t>(wide - piece.to.size.begin());
  const auto step = static_cast<std::uint64_t>(row_major_strides(shape)[d]);
  // A step of this dimension is a whole row of the tensor, of which the piece may hold only the middle.
  const std::uint64_t row_begin = span.begin / step * step;
  const std::uint64_t begin = elements.begin > row_begin ? (elements.begin - row_begin) / step : 0;
  const std::uint64_t end = std::min(piece.to.size[d], (elements.end - row_begin + step - 1) / step);
  TensorPiece out = piece;
  out.to.offset[d] += begin;
  out.to.size[d] = end - begin;
  if (const std::int8_t axis = piece.axes[d]; axis != TensorPiece::kRepeated) {
    out.from.offset[static_cast<std::size_t>(axis)] += begin;
    out.from.size[static_cast<std::size_t>(axis)] = end - begin;
  }
  return out;
}

/// A box of the source tensor, inside the piece, as a box of the new tensor.
Box moved(const TensorPiece& piece, const Box& box) {
  Box out = piece.to;
  for (std::size_t d = 0; d < piece.axes.size(); ++d) {
    if (piece.axes[d] == TensorPiece::kRepeated) continue;
    const auto axis = static_cast<std::size_t>(piece.axes[d]);
    out.offset[d] += box.offset[axis] - piece.from.offset[axis];
    out.size[d] = box.size[axis];
  }
  return out;
}

void boxes_of(const Chunk& chunk, std::vector<Box>& out) {
  out.clear();
  if (chunk.flat) {
    split_flat(chunk.box, *chunk.flat, out);
  } else {
    out.push_back(chunk.box);
  }
}

/// Where a box of the new tensor is; without strides if it is dense there.
Locator located(const TensorPiece& piece, const PlacedChunk& placed, const Box& box, const Box& target) {
  const Box& outer = placed.chunk.box;
  const std::vector<std::int64_t> strides =
      placed.where.strides.empty() ? row_major_strides(outer.size) : placed.where.strides;
  std::uint64_t element = 0;
  for (std::size_t d = 0; d < box.offset.size(); ++d)
    element += (box.offset[d] - outer.offset[d]) * static_cast<std::uint64_t>(strides[d]);
  Locator out = placed.where;
  out.offset += (element - (placed.chunk.flat ? placed.chunk.flat->begin : 0)) * unit_bytes(placed.where.dtype);
  out.strides.clear();
  for (const std::int8_t axis : piece.axes)
    out.strides.push_back(axis == TensorPiece::kRepeated ? 0 : strides[static_cast<std::size_t>(axis)]);
  const std::vector<std::int64_t> dense = row_major_strides(target.size);
  bool is_dense = true;
  for (std::size_t d = 0; d < dense.size(); ++d)
    is_dense = is_dense && (target.size[d] == 1 || out.strides[d] == dense[d]);
  if (is_dense) out.strides.clear();
  return out;
}

}  // namespace

void PiecedIndex::add(std::uint32_t source) {
  entries_.push_back({.is_same = true, .same = source});
}

void PiecedIndex::add(const Shape& shape, std::vector<TensorPiece> pieces) {
  Entry& entry = entries_.emplace_back();
  entry.shape = shape;
  for (TensorPiece& piece : pieces) {
    if (volume(piece.to.size) == 0) continue;
    const Extent span = span_of(piece.to, shape);
    entry.pieces.push_back({span, std::move(piece)});
  }
  std::ranges::sort(entry.pieces, {}, [](const Placed& one) { return one.span.begin; });
  for (std::size_t i = 1; i < entry.pieces.size(); ++i)
    entry.are_apart = entry.are_apart && entry.pieces[i - 1].span.end <= entry.pieces[i].span.begin;
}

template <class Visit>
Result<> PiecedIndex::each_piece(const Entry& entry, Extent elements, const Visit& visit) const {
  auto at = entry.pieces.begin();
  if (entry.are_apart)
    at = std::partition_point(at, entry.pieces.end(),
                              [&](const Placed& placed) { return placed.span.end <= elements.begin; });
  for (; at != entry.pieces.end() && at->span.begin < elements.end; ++at) {
    if (at->span.end <= elements.begin) continue;
    CKPT_CHECK(visit(narrowed(at->piece, entry.shape, at->span, elements)));
  }
  return {};
}

Extent PiecedIndex::span_in_source(const TensorPiece& piece) const {
  return span_of(piece.from, source_shapes_[piece.source]);
}

Result<> PiecedIndex::chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const {
  const Entry& entry = entries_[tensor];
  if (entry.is_same) return source_->chunks(entry.same, elements, visit);
  std::vector<Box> boxes;
  return each_piece(entry, elements, [&](const TensorPiece& piece) {
    return source_->chunks(piece.source, span_in_source(piece), [&](const PlacedChunk& placed) -> Result<> {
      boxes_of(placed.chunk, boxes);
      for (const Box& box : boxes) {
        const auto common = intersect(box, piece.from);
        if (!common) continue;
        PlacedChunk out{.chunk = {.box = moved(piece, *common)}, .where = {}};
        out.where = located(piece, placed, *common, out.chunk.box);
        if (out.where.strides.empty()) out.chunk = as_run(std::move(out.chunk), entry.shape);
        CKPT_CHECK(visit(out));
      }
      return {};
    });
  });
}

Result<> PiecedIndex::regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const {
  const Entry& entry = entries_[tensor];
  if (entry.is_same) return source_->regions(entry.same, elements, visit);
  std::vector<Box> boxes;
  return each_piece(entry, elements, [&](const TensorPiece& piece) {
    return source_->regions(piece.source, span_in_source(piece), [&](const Chunk& chunk) -> Result<> {
      boxes_of(chunk, boxes);
      for (const Box& box : boxes) {
        if (const auto common = intersect(box, piece.from)) CKPT_CHECK(visit({.box = moved(piece, *common)}));
      }
      return {};
    });
  });
}

}  // namespace ckpt
