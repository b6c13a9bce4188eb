#include "format/model/joined_index.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ckpt {

void JoinedIndex::add(std::shared_ptr<const ChunkIndex> index, std::size_t first_tensor, std::uint32_t first_file) {
  parts_.push_back({.index = std::move(index), .first_tensor = first_tensor, .first_file = first_file});
}

const JoinedIndex::Part& JoinedIndex::part_of(std::size_t tensor) const {
  const auto after = std::ranges::upper_bound(parts_, tensor, {}, &Part::first_tensor);
  return *std::prev(after);
}

Result<> JoinedIndex::chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const {
  const Part& part = part_of(tensor);
  if (part.first_file == 0) return part.index->chunks(tensor - part.first_tensor, elements, visit);
  return part.index->chunks(tensor - part.first_tensor, elements, [&](const PlacedChunk& placed) {
    PlacedChunk moved = placed;
    moved.where.file += part.first_file;
    return visit(moved);
  });
}

Result<> JoinedIndex::regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const {
  const Part& part = part_of(tensor);
  return part.index->regions(tensor - part.first_tensor, elements, visit);
}

}  // namespace ckpt
