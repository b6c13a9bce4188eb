#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "format/model/box.hpp"
#include "format/result.hpp"

namespace ckpt {

/// The shape of a parameter by the names and shapes of its optimizer state: what these broadcast to, as NumPy does it
/// (an Adafactor keeps rows (n, 1) and columns (1, m)). Adafactors that keep `..._row` (n) and `..._col` (m) have no
/// other state of two dimensions. State without dimensions says nothing. Nothing where the shapes contradict each
/// other.
std::optional<Shape> shape_of_state(const std::vector<std::pair<std::string_view, Shape>>& state);

/// One parameter group of an optimizer that does not store names.
struct UnnamedGroup {
  std::vector<std::optional<Shape>> shapes{};    ///< of its members in order, if known
  std::optional<std::uint64_t> flat_elements{};  ///< or: end to end in one tensor of this length
};

/// Whether a member's master, rounded, equals a candidate's weight. `position`: the member's index in its group, or its
/// first element in a flat group.
using Agrees = std::function<Result<bool>(std::size_t candidate, std::size_t group, std::uint64_t position)>;

/// Members of each group, as indices of candidates.
using Assignment = std::vector<std::vector<std::size_t>>;

/// Finds which weights are the members of the groups. Most optimizers keep members in the order of the module, within
/// each group; some weights may belong to no group (frozen ones). Shapes decide; if they leave a choice, `agrees` does
/// (may be empty). Where it contradicts that order (members sorted by layer or by name), it alone decides, except in
/// flat groups: then nothing is known. Nothing if more than one assignment fits: a wrong name is worse than none.
///
/// candidates  shapes of the weights, in module order; where a group is flat each has elements
/// errors      those of `agrees`
Result<std::optional<Assignment>> match_parameters(const std::vector<Shape>& candidates,
                                                   const std::vector<UnnamedGroup>& groups, const Agrees& agrees);

}  // namespace ckpt
