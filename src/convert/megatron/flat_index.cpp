#include "convert/megatron/flat_index.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace ckpt::megatron {
namespace {

/// The first element of a chunk of a flat tensor; `flat` is the tensor's shape if it is not of one dimension.
std::uint64_t first_element(const Chunk& chunk, const Shape& flat) {
  const std::uint64_t corner =
      flat.empty() ? chunk.box.offset.front() : linear_index(Box::whole(flat), chunk.box.offset);
  return corner + (chunk.flat ? chunk.flat->begin : 0);
}

/// The part of a chunk of the flat tensor that lies in a piece, as elements of the piece; nothing: none does.
std::optional<Extent> common_part(std::uint64_t first, const Chunk& chunk, const FlatPiece& piece) {
  const std::uint64_t begin = std::max(first, piece.begin);
  const std::uint64_t end = std::min(first + chunk.volume(), piece.begin + volume(piece.to.size));
  if (begin >= end) return std::nullopt;
  return Extent{begin - piece.begin, end - piece.begin};
}

Chunk part_of(const FlatPiece& piece, Extent part) {
  Chunk out{.box = piece.to};
  if (part.size() != volume(piece.to.size)) out.flat = part;
  return out;
}

}  // namespace

void FlatIndex::add(std::uint32_t source) {
  entries_.push_back({.is_same = true, .same = source});
}

void FlatIndex::add(const Shape& shape, std::vector<FlatPiece> pieces, Shape flat) {
  Entry& entry = entries_.emplace_back();
  entry.flat = std::move(flat);
  const Box whole = Box::whole(shape);
  const auto first = [&](const FlatPiece& piece) { return linear_index(whole, piece.to.offset); };
  std::ranges::sort(pieces, {}, first);
  for (const FlatPiece& piece : pieces) {
    Shape last = piece.to.offset;
    for (std::size_t d = 0; d < last.size(); ++d) last[d] += piece.to.size[d] - 1;
    entry.spans.push_back({first(piece), linear_index(whole, last) + 1});
  }
  entry.pieces = std::move(pieces);
}

template <class Visit>
Result<> FlatIndex::each_piece(const Entry& entry, Extent elements, const Visit& visit) const {
  for (std::size_t i = 0; i < entry.pieces.size() && entry.spans[i].begin < elements.end; ++i)
    if (entry.spans[i].end > elements.begin) CKPT_CHECK(visit(entry.pieces[i]));
  return {};
}

Result<> FlatIndex::chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const {
  const Entry& entry = entries_[tensor];
  if (entry.is_same) return source_->chunks(entry.same, elements, visit);
  return each_piece(entry, elements, [&](const FlatPiece& piece) {
    const Extent range{piece.begin, piece.begin + volume(piece.to.size)};
    return source_->chunks(piece.source, range, [&](const PlacedChunk& placed) -> Result<> {
      const std::uint64_t first = first_element(placed.chunk, entry.flat);
      const auto part = common_part(first, placed.chunk, piece);
      if (!part) return {};
      PlacedChunk out{.chunk = part_of(piece, *part), .where = placed.where};
      const std::uint64_t step =
          placed.where.strides.empty() ? 1 : static_cast<std::uint64_t>(placed.where.strides.back());
      out.where.offset += (piece.begin + part->begin - first) * step * unit_bytes(placed.where.dtype);
      if (step != 1 && part->size() > 1)
        return fail(Errc::unsupported, "the optimizer's flat buffer is not contiguous");
      out.where.strides.clear();
      return visit(out);
    });
  });
}

Result<> FlatIndex::regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const {
  const Entry& entry = entries_[tensor];
  if (entry.is_same) return source_->regions(entry.same, elements, visit);
  return each_piece(entry, elements, [&](const FlatPiece& piece) {
    const Extent range{piece.begin, piece.begin + volume(piece.to.size)};
    return source_->regions(piece.source, range, [&](const Chunk& chunk) -> Result<> {
      const auto part = common_part(first_element(chunk, entry.flat), chunk, piece);
      return part ? visit(part_of(piece, *part)) : Result<>{};
    });
  });
}

}  // namespace ckpt::megatron
