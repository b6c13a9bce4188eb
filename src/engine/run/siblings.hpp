#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/run/plan.hpp"

namespace ckpt {

/// Leaves that take other columns of the same rows of the source: what one reads holds what the others need.

/// Those of target files that have the same placements but for the parts, as files of tensor-parallel ranks do: the same
/// leaf of each file.
///
/// returns  groups of at least two files, by number
/// errors   of the source's index
Result<std::vector<std::vector<std::size_t>>> find_siblings(const Map& source, const std::vector<TargetFile>& targets);

/// Those of one file, with a tensor that the source holds transposed.
///
/// returns  disjoint ranges of at least two leaves of the file, in order
/// errors   of the source's index
Result<std::vector<Extent>> find_transposed(const Map& source, const TargetFile& file);

/// The dimension whose elements follow each other in a box of the source that is not stored row by row of the tensor;
/// nothing for other boxes, and for those with elements between.
///
/// strides  of the source, in elements
std::optional<std::size_t> transposed_dimension(const Shape& size, std::span<const std::int64_t> strides);

}  // namespace ckpt
