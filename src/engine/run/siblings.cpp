#include "engine/run/siblings.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "format/hash.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kMostRereads = 3;           // of a row, for groups of leaves and files that take parts of it
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

/// The first chunk of the source with elements of a placement among the first so many of it.
Result<std::optional<PlacedChunk>> first_chunk(const Map& source, const Placement& placement, std::uint64_t elements) {
  const Shape& shape = source.tensors[placement.tensor].shape;
  const std::uint64_t first =
      placement.chunk ? linear_index(Box::whole(shape), placement.chunk->box.offset) : std::uint64_t{0};
  const std::uint64_t end = std::min(volume(shape), first + elements);
  std::optional<PlacedChunk> out;
  CKPT_CHECK(source.index->chunks(placement.tensor, {first, end}, [&](const PlacedChunk& placed) -> Result<> {
    if (!out) out = placed;
    return {};
  }));
  return out;
}

/// Whether elements that follow each other in the tensor do so in the source.
bool has_rows(const PlacedChunk& placed) {
  const Shape& size = placed.chunk.box.size;
  if (placed.where.strides.empty()) return true;
  for (std::size_t d = size.size(); d-- > 0;)
    if (size[d] > 1) return placed.where.strides[d] == 1;
  return true;
}

/// Whether the source holds rows of which a placement needs a part.
Result<bool> has_wider_rows(const Map& source, const Placement& placement, std::size_t dimension) {
  CKPT_TRY(const auto placed, first_chunk(source, placement, 1));
  return placed && has_rows(*placed) && placed->chunk.box.size[dimension] > placement.chunk->box.size[dimension];
}

/// Ranges of leaves of a placement that need the same rows: of each matrix, where it is a stack of them.
Result<std::vector<Extent>> leaves_of_transposed(const Map& source, const Placement& placement) {
  std::vector<Extent> out;
  if (placement.from != Placement::From::tensor || (placement.chunk && placement.chunk->flat) ||
      is_packed(placement.dtype) || placement.bytes <= kLeafBytes)
    return out;
  const std::uint64_t unit = unit_bytes(placement.dtype);
  CKPT_TRY(const auto placed, first_chunk(source, placement, 2 * kLeafBytes / unit));
  if (!placed || placed->chunk.volume() != volume(placed->chunk.box.size) || placed->where.compressed) return out;
  const auto along = transposed_dimension(placed->chunk.box.size, placed->where.strides);
  if (!along) return out;
  const Shape& own = placement.chunk ? placement.chunk->box.size : source.tensors[placement.tensor].shape;
  std::uint64_t column_bytes = unit;
  std::uint64_t row = own[*along];  // elements from row to row
  for (std::size_t d = *along + 1; d < own.size(); ++d) {
    column_bytes *= own[d];
    if (placed->chunk.box.size[d] > 1) row = std::max(row, static_cast<std::uint64_t>(placed->where.strides[d]));
  }
  const std::uint64_t columns = std::min(own[*along], kMostSiblings * kLeafBytes / column_bytes);
  const std::uint64_t matrix_bytes = column_bytes * own[*along];
  if (matrix_bytes <= kLeafBytes || column_bytes > kLeafBytes || row / kMostRereads > columns) return out;
  for (std::uint64_t at = placement.offset; at < placement.offset + placement.bytes; at += matrix_bytes)
    out.push_back({at / kLeafBytes, (at + matrix_bytes - 1) / kLeafBytes + 1});
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

std::optional<std::size_t> transposed_dimension(const Shape& size, std::span<const std::int64_t> strides) {
  if (strides.empty()) return std::nullopt;
  std::optional<std::size_t> inner;
  std::size_t last = 0;  // with more than one element
  for (std::size_t d = 0; d < size.size(); ++d) {
    if (size[d] == 1) continue;
    last = d;
    if (!inner || strides[d] < strides[*inner]) inner = d;
  }
  if (!inner || *inner == last || strides[*inner] != 1) return std::nullopt;
  for (std::size_t d = 0; d < size.size(); ++d)
    if (d != *inner && size[d] > 1 && static_cast<std::uint64_t>(strides[d]) < size[*inner]) return std::nullopt;
  return inner;
}

Result<std::vector<Extent>> find_transposed(const Map& source, const TargetFile& file) {
  std::vector<Extent> out;
  std::uint64_t leaves_before = 0;  // of the last matrix
  for (const Placement& placement : file.placements) {
    CKPT_TRY(const std::vector<Extent> found, leaves_of_transposed(source, placement));
    for (Extent leaves : found) {
      const std::uint64_t size = leaves.size();
      if (!out.empty() && out.back().end > leaves.begin) {  // a leaf with parts of both
        Extent& before = out.back();
        if (leaves.end - before.begin <= kMostSiblings) {
          before.end = leaves.end;
          leaves_before = size;
          continue;
        }
        // The rows of one of them are read once more, for this leaf: of the smaller one.
        (leaves_before < size ? before.end : leaves.begin) = leaves_before < size ? leaves.begin : before.end;
      }
      leaves_before = size;
      const std::uint64_t groups = (leaves.size() + kMostSiblings - 1) / kMostSiblings;
      for (std::uint64_t g = 0; g < groups; ++g)
        out.push_back({leaves.begin + leaves.size() * g / groups, leaves.begin + leaves.size() * (g + 1) / groups});
    }
  }
  std::erase_if(out, [](const Extent& group) { return group.size() < 2; });
  return out;
}

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
