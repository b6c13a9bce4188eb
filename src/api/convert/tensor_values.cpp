#include "api/convert/tensor_values.hpp"

#include <algorithm>

#include "format/checked.hpp"

namespace ckpt {

Result<std::optional<Chunk>> without_repeats(const Map& map, std::uint32_t tensor) {
  const Shape& shape = map.tensors[tensor].shape;
  if (is_packed(map.tensors[tensor].dtype) || shape.empty()) return std::nullopt;
  Box once = Box::whole(shape);
  CKPT_TRY(const std::uint64_t elements, checked_volume(once.size));
  if (elements == 0) return std::nullopt;
  CKPT_CHECK(map.index->chunks(tensor, {0, 1}, [&](const PlacedChunk& placed) -> Result<> {
    const bool whole =
        placed.chunk.box.size == shape && placed.chunk.flat.value_or(Extent{0, elements}).size() == elements;
    if (!whole || placed.where.strides.empty()) return {};
    for (std::size_t d = 0; d < shape.size(); ++d)
      if (placed.where.strides[d] == 0) once.size[d] = 1;
    return {};
  }));
  if (once.size == shape) return std::nullopt;
  return Chunk{.box = once};
}

void visit_tensors(const Plan& plan, std::uint64_t leaf, std::span<const std::byte> bytes,
                   const std::function<void(const Placement&, std::span<const std::byte>)>& visit) {
  const auto& targets = plan.targets();
  std::size_t low = 0;
  std::size_t high = targets.size();
  while (high - low > 1) {
    const std::size_t middle = (low + high) / 2;
    (plan.first_leaf(middle) <= leaf ? low : high) = middle;
  }
  const std::uint64_t begin = (leaf - plan.first_leaf(low)) * kLeafBytes;
  const std::uint64_t end = begin + bytes.size();
  for (const Placement& placement : targets[low].placements) {
    if (placement.from != Placement::From::tensor) continue;
    const std::uint64_t from = std::max(begin, placement.offset);
    const std::uint64_t to = std::min(end, placement.offset + placement.bytes);
    if (from < to) visit(placement, bytes.subspan(from - begin, to - from));
  }
}

}  // namespace ckpt
