#include "engine/run/siblings.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "format/hash.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kWorthSharing = 64 * 1024;  // bytes of a placement

/// The last dimension but the first in which a placement has less than all of its tensor.
std::optional<std::size_t> narrowed_dimension(const Placement& placement, const Map& source) {
  if (placement.from != Placement::From::tensor || !placement.chunk || placement.chunk->flat ||
      is_packed(placement.dtype) || placement.bytes < kWorthSharing)
    return std::nullopt;
  const Shape& all = source.tensors[placement.tensor].shape;
  const Shape& own = placement.chunk->box.size;
  for (std::size_t d = own.size(); d-- > 1;)
    if (own[d] < all[d]) return d;
  return std::nullopt;
}

/// Whether the source holds rows of which a placement needs a part.
Result<bool> has_wider_rows(const Map& source, const Placement& placement, std::size_t dimension) {
  const Box& own = placement.chunk->box;
  const std::uint64_t first = linear_index(Box::whole(source.tensors[placement.tensor].shape), own.offset);
  bool out = false;
  CKPT_CHECK(source.index->chunks(placement.tensor, {first, first + 1}, [&](const PlacedChunk& placed) -> Result<> {
    out = out || placed.chunk.box.size[dimension] > own.size[dimension];
    return {};
  }));
  return out;
}

Result<bool> shares_rows(const Map& source, const TargetFile& file) {
  for (const Placement& placement : file.placements) {
    const auto dimension = narrowed_dimension(placement, source);
    if (!dimension) continue;
    CKPT_TRY(const bool is_wider, has_wider_rows(source, placement, *dimension));
    if (is_wider) return true;
  }
  return false;
}

/// Equal for files of one length whose tensors are the same and lie in the same places.
Hash128 placements_hash(const TargetFile& file) {
  Hasher hasher;
  hasher.update_u64(file.bytes);
  for (const Placement& placement : file.placements) {
    if (placement.from != Placement::From::tensor) continue;
    for (const std::uint64_t number : {placement.offset, placement.bytes, std::uint64_t{placement.tensor},
                                       static_cast<std::uint64_t>(placement.dtype)})
      hasher.update_u64(number);
  }
  return hasher.digest();
}

}  // namespace

Result<std::vector<std::vector<std::size_t>>> find_siblings(const Map& source, const std::vector<TargetFile>& targets) {
  std::vector<std::vector<std::size_t>> out;
  if (targets.size() < 2) return out;
  std::map<std::string, std::size_t> groups;
  for (std::size_t f = 0; f < targets.size(); ++f) {
    const bool has_columns = std::ranges::any_of(
        targets[f].placements, [&](const Placement& one) { return narrowed_dimension(one, source).has_value(); });
    if (!has_columns) continue;
    const auto [group, is_new] = groups.emplace(placements_hash(targets[f]).hex(), out.size());
    if (is_new) out.emplace_back();
    out[group->second].push_back(f);
  }
  std::vector<std::vector<std::size_t>> sharing;
  for (std::vector<std::size_t>& files : out) {
    if (files.size() < 2) continue;
    CKPT_TRY(const bool is_worth, shares_rows(source, targets[files.front()]));
    if (is_worth) sharing.push_back(std::move(files));
  }
  return sharing;
}

}  // namespace ckpt
