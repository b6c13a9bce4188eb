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

/// What masters say about the members of groups.
class Evidence {
 public:
  Evidence(const std::vector<Shape>& candidates, const std::vector<UnnamedGroup>& groups, const Agrees& agrees)
      : candidates_(candidates), groups_(groups), agrees_(agrees) {}

  Result<bool> supports(const Assignment& assignment) const {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      std::uint64_t position = 0;
      for (const std::size_t candidate : assignment[g]) {
        CKPT_TRY(const bool agrees, agrees_(candidate, g, position));
        if (!agrees) return false;
        position += groups_[g].flat_elements ? volume(candidates_[candidate]) : 1;
      }
    }
    return true;
  }

  /// Of groups that are not flat, in any order: the only candidate of each member, once those of the others are taken
  /// away. `agreed` says whether a member agrees with any candidate, but not with the one that `other` gives it.
  Result<std::optional<Assignment>> in_any_order(const Assignment* other, bool& agreed) const {
    std::vector<Member> open;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (std::size_t m = 0; m < groups_[g].shapes.size(); ++m) {
        CKPT_TRY(Member member, choices(g, m));
        const bool as_other = other != nullptr && std::ranges::count(member.choices, (*other)[g][m]) != 0;
        agreed = agreed || (!as_other && !member.choices.empty());
        open.push_back(std::move(member));
      }
    }
    Assignment found(groups_.size());
    for (std::size_t g = 0; g < groups_.size(); ++g) found[g].resize(groups_[g].shapes.size());
    std::vector<bool> taken(candidates_.size(), false);
    while (!open.empty()) {
      const std::size_t before = open.size();
      for (Member& member : open) std::erase_if(member.choices, [&](std::size_t choice) { return taken[choice]; });
      std::erase_if(open, [&](const Member& member) {
        if (member.choices.size() != 1 || taken[member.choices[0]]) return false;
        taken[member.choices[0]] = true;
        found[member.group][member.position] = member.choices[0];
        return true;
      });
      if (open.size() == before) return std::optional<Assignment>{};
    }
    return std::optional(std::move(found));
  }

 private:
  struct Member {
    std::size_t group = 0;
    std::size_t position = 0;
    std::vector<std::size_t> choices{};
  };

  Result<Member> choices(std::size_t group, std::size_t position) const {
    Member member{.group = group, .position = position};
    const auto& shape = groups_[group].shapes[position];
    for (std::size_t c = 0; c < candidates_.size(); ++c) {
      if (shape && *shape != candidates_[c]) continue;
      CKPT_TRY(const bool agrees, agrees_(c, group, position));
      if (agrees) member.choices.push_back(c);
    }
    return member;
  }

  const std::vector<Shape>& candidates_;
  const std::vector<UnnamedGroup>& groups_;
  const Agrees& agrees_;
};

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

Result<std::optional<Assignment>> match_in_order(const std::vector<Shape>& candidates,
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
  CKPT_TRY(auto ordered, match_in_order(candidates, groups, agrees));
  if (!agrees) return ordered;
  const Evidence evidence(candidates, groups, agrees);
  if (ordered) {
    CKPT_TRY(const bool supported, evidence.supports(*ordered));
    if (supported) return ordered;
  }
  if (std::ranges::any_of(groups, [](const auto& group) { return group.flat_elements.has_value(); }))
    return std::optional<Assignment>{};
  bool agreed = false;
  CKPT_TRY(auto found, evidence.in_any_order(ordered ? &*ordered : nullptr, agreed));
  // A weight that was changed after its master agrees with none: the order still tells whose it is.
  if (!found && ordered && !agreed) return ordered;
  return found;
}

}  // namespace ckpt
