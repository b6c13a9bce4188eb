#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "format/model/model.hpp"

namespace ckpt {

/// The values of --only, as ConvertRequest::only describes them.
struct OnlyRule {
  bool weights = false;
  bool optim = false;
  std::vector<std::string> globs{};         ///< only words that are not roles
  std::unordered_set<std::string> names{};  ///< those that match one name only: there may be as many as tensors
  std::vector<std::string> wildcards{};     ///< the others

  explicit OnlyRule(const std::vector<std::string>& only);
  bool everything() const { return !weights && !optim && globs.empty(); }
  bool by_role(Role role) const;
  bool matches(const std::string& name) const;  ///< a glob
  /// A tensor of this role and name.
  bool takes(Role role, const std::string& name) const { return everything() || by_role(role) || matches(name); }
};

}  // namespace ckpt
