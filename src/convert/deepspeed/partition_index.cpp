#include "convert/deepspeed/partition_index.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace ckpt::deepspeed {

std::uint32_t PartitionIndex::add_array(std::vector<Run> ranks) {
  arrays_.push_back(std::move(ranks));
  return static_cast<std::uint32_t>(arrays_.size() - 1);
}

void PartitionIndex::add_whole(Shape shape, Locator where) {
  tensors_.push_back({std::move(shape), std::move(where)});
}

void PartitionIndex::add_in_group(Shape shape, const InGroup& place) {
  tensors_.push_back({std::move(shape), place});
}

void PartitionIndex::add_partitioned(Shape shape, const Partitioned& place) {
  tensors_.push_back({std::move(shape), place});
}

void PartitionIndex::add_pieces(Shape shape, std::vector<Piece> pieces) {
  tensors_.push_back({std::move(shape), std::move(pieces)});
}

/// Visits elements [elements) of the tensor, which begin `skip` elements into the run.
Result<> PartitionIndex::visit_part(const Record& record, const Run& run, Extent elements, std::uint64_t skip,
                                    const ChunkVisitor& visit) const {
  PlacedChunk placed{.chunk = {Box::whole(record.shape), elements},
                     .where = {.file = run.file,
                               .offset = run.offset + skip * unit_bytes(run.dtype),
                               .dtype = run.dtype,
                               .big_endian = run.big_endian,
                               .crc = run.crc}};
  if (elements == Extent{0, volume(record.shape)}) placed.chunk.flat.reset();
  return visit(placed);
}

Result<> PartitionIndex::visit_piece(const Record& record, const Piece& piece, Extent elements,
                                     const ChunkVisitor& visit) const {
  const std::uint64_t count = volume(piece.box.size);
  if (count == 0) return {};
  const Box whole = Box::whole(record.shape);
  Shape last = piece.box.offset;
  for (std::size_t d = 0; d < last.size(); ++d) last[d] += piece.box.size[d] - 1;
  if (linear_index(whole, piece.box.offset) >= elements.end || linear_index(whole, last) < elements.begin) return {};
  std::set<std::uint64_t> cuts{0, count};  // of all copies, in elements of the box
  for (const auto& copy : piece.copies) {
    const auto* place = std::get_if<InGroup>(&copy);
    if (place == nullptr) continue;
    for (std::uint64_t part = place->group.part_of(place->begin);; ++part) {
      const std::uint64_t end = place->group.owned(part).end;
      if (end >= place->begin + count) break;
      cuts.insert(end - place->begin);
    }
  }
  for (auto at = cuts.begin(); std::next(at) != cuts.end(); ++at) {
    const Extent part{*at, *std::next(at)};
    if (piece.box == whole && (part.begin >= elements.end || part.end <= elements.begin)) continue;
    for (const auto& copy : piece.copies) {
      PlacedChunk placed{.chunk = {piece.box, part}, .where = {}};
      if (part == Extent{0, count}) placed.chunk.flat.reset();
      if (const auto* locator = std::get_if<Locator>(&copy)) {
        placed.where = *locator;
        placed.where.offset += part.begin * unit_bytes(locator->dtype);
      } else {
        const auto& place = std::get<InGroup>(copy);
        const std::uint64_t first = place.begin + part.begin;
        const std::uint64_t rank = place.group.part_of(first);
        const Run& run = arrays_[place.array][rank];
        placed.where = {.file = run.file,
                        .offset = run.offset + (first - place.group.owned(rank).begin) * unit_bytes(run.dtype),
                        .dtype = run.dtype,
                        .big_endian = run.big_endian,
                        .crc = run.crc};
      }
      CKPT_CHECK(visit(placed));
    }
  }
  return {};
}

Result<> PartitionIndex::chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const {
  const Record& record = tensors_[tensor];
  const std::uint64_t count = volume(record.shape);
  elements.end = std::min(elements.end, count);
  if (elements.begin >= elements.end) return {};
  if (const auto* whole = std::get_if<Locator>(&record.place)) {
    return visit({.chunk = {Box::whole(record.shape)}, .where = *whole});
  }
  if (const auto* in_group = std::get_if<InGroup>(&record.place)) {
    const auto& ranks = arrays_[in_group->array];
    const std::uint64_t begin = in_group->begin;
    for (std::uint64_t rank = in_group->group.part_of(begin + elements.begin); rank < ranks.size(); ++rank) {
      const Extent owned = in_group->group.owned(rank);
      const std::uint64_t first = std::max(owned.begin, begin);
      const std::uint64_t last = std::min(owned.end, begin + count);
      if (first >= begin + elements.end || first >= last) break;
      CKPT_CHECK(visit_part(record, ranks[rank], {first - begin, last - begin}, first - owned.begin, visit));
    }
    return {};
  }
  if (const auto* pieces = std::get_if<std::vector<Piece>>(&record.place)) {
    for (const Piece& piece : *pieces) CKPT_CHECK(visit_piece(record, piece, elements, visit));
    return {};
  }
  const auto& partitioned = std::get<Partitioned>(record.place);
  const auto& ranks = arrays_[partitioned.array];
  for (std::uint64_t rank = partitioned.cut.part_of(elements.begin); rank < ranks.size(); ++rank) {
    const Extent owned = partitioned.cut.owned(rank);
    if (owned.begin >= elements.end) break;
    CKPT_CHECK(visit_part(record, ranks[rank], owned, partitioned.begin, visit));
  }
  return {};
}

}  // namespace ckpt::deepspeed
