#pragma once

#include <cstddef>
#include <vector>

#include "engine/run/plan.hpp"

namespace ckpt {

/// Target files that take other columns of the same rows of the source, as those of tensor-parallel ranks do: what a leaf
/// of one reads holds what the same leaf of the others needs. They have the same placements but for the parts.
///
/// returns  groups of at least two files, by number
/// errors   of the source's index
Result<std::vector<std::vector<std::size_t>>> find_siblings(const Map& source, const std::vector<TargetFile>& targets);

}  // namespace ckpt
