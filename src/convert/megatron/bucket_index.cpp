#include "convert/megatron/bucket_index.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace ckpt::megatron {
namespace {

/// The part of a chunk of the flat tensor that lies in a piece, as elements of the piece; nothing: none does.
std::optional<Extent> common_part(const Chunk& chunk, const BucketPiece& piece) {
  const std::uint64_t first = chunk.box.offset.front() + (chunk.flat ? chunk.flat->begin : 0);
  const std::uint64_t begin = std::max(first, piece.begin);
  const std::uint64_t end = std::min(first + chunk.volume(), piece.begin + volume(piece.to.size));
  if (begin >= end) return std::nullopt;
  return Extent{begin - piece.begin, end - piece.begin};
}

Chunk part_of(const BucketPiece& piece, Extent part) {
  Chunk out{.box = piece.to};
  if (part.size() != volume(piece.to.size)) out.flat = part;
  return out;
}

}  // namespace

void BucketIndex::add(std::uint32_t source) {
  entries_.push_back({.is_same = true, .same = source});
}

void BucketIndex::add(const Shape& shape, std::vector<BucketPiece> pieces) {
  Entry& entry = entries_.emplace_back();
  const Box whole = Box::whole(shape);
  const auto first = [&](const BucketPiece& piece) { return linear_index(whole, piece.to.offset); };
  std::ranges::sort(pieces, {}, first);
  for (const BucketPiece& piece : pieces) {
    Shape last = piece.to.offset;
    for (std::size_t d = 0; d < last.size(); ++d) last[d] += piece.to.size[d] - 1;
    entry.spans.push_back({first(piece), linear_index(whole, last) + 1});
  }
  entry.pieces = std::move(pieces);
}

template <class Visit>
Result<> BucketIndex::each_piece(const Entry& entry, Extent elements, const Visit& visit) const {
  for (std::size_t i = 0; i < entry.pieces.size() && entry.spans[i].begin < elements.end; ++i)
    if (entry.spans[i].end > elements.begin) CKPT_CHECK(visit(entry.pieces[i]));
  return {};
}

Result<> BucketIndex::chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const {
  const Entry& entry = entries_[tensor];
  if (entry.is_same) return source_->chunks(entry.same, elements, visit);
  return each_piece(entry, elements, [&](const BucketPiece& piece) {
    const Extent range{piece.begin, piece.begin + volume(piece.to.size)};
    return source_->chunks(piece.source, range, [&](const PlacedChunk& placed) -> Result<> {
      const auto part = common_part(placed.chunk, piece);
      if (!part) return {};
      PlacedChunk out{.chunk = part_of(piece, *part), .where = placed.where};
      const std::uint64_t step =
          placed.where.strides.empty() ? 1 : static_cast<std::uint64_t>(placed.where.strides.front());
      const std::uint64_t first = placed.chunk.box.offset.front() + (placed.chunk.flat ? placed.chunk.flat->begin : 0);
      out.where.offset += (piece.begin + part->begin - first) * step * unit_bytes(placed.where.dtype);
      if (step != 1 && part->size() > 1)
        return fail(Errc::unsupported, "the optimizer's buckets are stored with gaps between their elements");
      out.where.strides.clear();
      return visit(out);
    });
  });
}

Result<> BucketIndex::regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const {
  const Entry& entry = entries_[tensor];
  if (entry.is_same) return source_->regions(entry.same, elements, visit);
  return each_piece(entry, elements, [&](const BucketPiece& piece) {
    const Extent range{piece.begin, piece.begin + volume(piece.to.size)};
    return source_->regions(piece.source, range, [&](const Chunk& chunk) -> Result<> {
      const auto part = common_part(chunk, piece);
      return part ? visit(part_of(piece, *part)) : Result<>{};
    });
  });
}

}  // namespace ckpt::megatron
