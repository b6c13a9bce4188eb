#include "format/model/match_parameters.hpp"

#include <algorithm>
#include <limits>

namespace ckpt {
namespace {

enum class Direction : std::uint8_t { forward, backward };

/// One walk over the candidates, each given to the one group whose next member it can be.
class Walk {
 public:
  Walk(const std::vector<Shape>& candidates, const std::vector<UnnamedGroup>& groups, const Agrees* agrees,
       Direction direction, bool may_skip)
      : candidates_(candidates),
        groups_(groups),
        agrees_(agrees),
        backward_(direction == Direction::backward),
        may_skip_(may_skip),
        taken_(groups.size(), 0),
        found_(groups.size()) {}

  Result<std::optional<Assignment>> run() {
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const std::size_t candidate = backward_ ? candidates_.size() - 1 - i : i;
      std::optional<std::size_t> owner;
      for (std::size_t g = 0; g < groups_.size(); ++g) {
        CKPT_TRY(const bool can, fits(candidate, g));
        if (!can) continue;
        if (owner) return std::optional<Assignment>{};  // two groups could have it
        owner = g;
      }
      if (!owner) {
        if (!may_skip_) return std::optional<Assignment>{};
        continue;
      }
      found_[*owner].push_back(candidate);
      taken_[*owner] += groups_[*owner].flat_elements ? volume(candidates_[candidate]) : 1;
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (taken_[g] != length(g)) return std::optional<Assignment>{};
      if (backward_) std::reverse(found_[g].begin(), found_[g].end());
    }
    return std::optional(std::move(found_));
  }

 private:
  /// Members of a group, or elements of a flat one.
  std::uint64_t length(std::size_t group) const {
    return groups_[group].flat_elements.value_or(groups_[group].shapes.size());
  }

  Result<bool> fits(std::size_t candidate, std::size_t group) const {
    const UnnamedGroup& members = groups_[group];
    const std::uint64_t step = members.flat_elements ? volume(candidates_[candidate]) : 1;
    if (step > length(group) - taken_[group]) return false;
    const std::uint64_t position = backward_ ? length(group) - taken_[group] - step : taken_[group];
    if (!members.flat_elements) {
      const auto& shape = members.shapes[static_cast<std::size_t>(position)];
      if (shape && *shape != candidates_[candidate]) return false;
    }
    if (agrees_ == nullptr) return true;
    return (*agrees_)(candidate, group, position);
  }

  const std::vector<Shape>& candidates_;
  const std::vector<UnnamedGroup>& groups_;
  const Agrees* agrees_;
  bool backward_;
  bool may_skip_;
  std::vector<std::uint64_t> taken_;
  Assignment found_;
};

/// True when every candidate must be a member of some group.
bool all_are_members(const std::vector<Shape>& candidates, const std::vector<UnnamedGroup>& groups) {
  const bool flat =
      std::any_of(groups.begin(), groups.end(), [](const auto& g) { return g.flat_elements.has_value(); });
  std::uint64_t have = 0;
  std::uint64_t want = 0;
  for (const Shape& shape : candidates) have += flat ? volume(shape) : 1;
  for (const UnnamedGroup& group : groups) want += flat ? group.flat_elements.value_or(0) : group.shapes.size();
  return have == want;
}

/// False where the shapes do not go together.
bool broadcast(Shape& to, const Shape& other) {
  if (other.size() > to.size()) to.insert(to.begin(), other.size() - to.size(), 1);
  const std::size_t skipped = to.size() - other.size();
  for (std::size_t d = 0; d < other.size(); ++d) {
    std::uint64_t& size = to[skipped + d];
    if (size != other[d] && size != 1 && other[d] != 1) return false;
    if (size == 1) size = other[d];
  }
  return true;
}

}  // namespace

std::optional<Shape> shape_of_state(const std::vector<std::pair<std::string_view, Shape>>& state) {
  std::optional<Shape> out;
  const Shape* row = nullptr;
  const Shape* column = nullptr;
  for (const auto& [slot, shape] : state) {
    if (shape.empty()) continue;
    if (slot.ends_with("_row")) {
      row = &shape;
    } else if (slot.ends_with("_col")) {
      column = &shape;
    } else if (!out) {
      out = shape;
    } else if (!broadcast(*out, shape)) {
      return std::nullopt;
    }
  }
  if (out || row == nullptr || column == nullptr) return out;
  out = *row;
  out->push_back(column->back());
  return out;
}

Result<std::optional<Assignment>> match_parameters(const std::vector<Shape>& candidates,
                                                   const std::vector<UnnamedGroup>& groups, const Agrees& agrees) {
  const bool complete = all_are_members(candidates, groups);
  if (complete) {
    // Nothing is left over: if each step has one choice, the assignment is unique.
    CKPT_TRY(auto forced, Walk(candidates, groups, nullptr, Direction::forward, false).run());
    if (forced) return forced;
  }
  const Agrees* evidence = agrees ? &agrees : nullptr;
  if (complete && evidence == nullptr) return std::optional<Assignment>{};
  // The earliest and the latest way to place the members: if they are the same, there is only one.
  CKPT_TRY(auto first, Walk(candidates, groups, evidence, Direction::forward, !complete).run());
  if (!first) return first;
  CKPT_TRY(const auto last, Walk(candidates, groups, evidence, Direction::backward, !complete).run());
  if (first != last) return std::optional<Assignment>{};
  return first;
}

}  // namespace ckpt
