#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "cli/text/units.hpp"

namespace ckpt::cli {

/// Names with more parts than this keep the rest in their last branch: depth is given by files.
constexpr std::size_t kDeepestTree = 32;

/// The names as a tree of their parts between dots, at most `depth` levels, numbers in their order. A branch shows
/// the size and the number of tensors below it, a tensor its dtype, shape and size. Tied names count as nothing.
/// `fold`: consecutive numbers with the same names, dtypes and shapes below them are shown once: "0-31  ×32".
std::string draw_tree(const std::vector<ListedTensor>& tensors, std::size_t depth, SizeStyle sizes, bool fold);

}  // namespace ckpt::cli
