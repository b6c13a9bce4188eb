#include "convert/deepspeed/files/partition_index.hpp"

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

PartitionIndex::Stretch PartitionIndex::stretch(const Source& source, std::uint64_t at, std::uint64_t count) const {
  if (const auto* locator = std::get_if<Locator>(&source)) {
    Stretch out{*locator, count - at};
    out.where.offset += at * unit_bytes(locator->dtype);
    return out;
  }
  const auto in_run = [](const Run& run, std::uint64_t skip, std::uint64_t elements) {
    return Stretch{{.file = run.file,
                    .offset = run.offset + skip * unit_bytes(run.dtype),
                    .dtype = run.dtype,
                    .big_endian = run.big_endian,
                    .crc = run.crc},
                   elements};
  };
  if (const auto* place = std::get_if<InGroup>(&source)) {
    const std::uint64_t first = place->begin + at;
    const std::uint64_t rank = place->group.part_of(first);
    const Extent owned = place->group.owned(rank);
    return in_run(arrays_[place->array][rank], first - owned.begin, std::min(owned.end - first, count - at));
  }
  const auto& [of, begin] = std::get<InPartition>(source);
  const std::uint64_t first = begin + at;
  const std::uint64_t rank = of.cut.part_of(first);
  const Extent owned = of.cut.owned(rank);
  return in_run(arrays_[of.array][rank], of.begin + (first - owned.begin), std::min(owned.end - first, count - at));
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
  for (const Source& copy : piece.copies) {
    for (std::uint64_t at = 0; at < count; at += stretch(copy, at, count).elements) cuts.insert(at);
  }
  for (auto at = cuts.begin(); std::next(at) != cuts.end(); ++at) {
    const Extent part{*at, *std::next(at)};
    if (piece.box == whole && (part.begin >= elements.end || part.end <= elements.begin)) continue;
    for (const Source& copy : piece.copies) {
      PlacedChunk placed{.chunk = {piece.box, part}, .where = stretch(copy, part.begin, count).where};
      if (part == Extent{0, count}) placed.chunk.flat.reset();
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
