#pragma once

#include <string>
#include <vector>

#include "catalog/policy.hpp"

/// Policies in plain words, and the differences between two.
namespace ckpt::catalog {

struct PolicyLine {
  std::string topic{};  ///< "keep", "weights", "space", "guard", "trash", "count"
  std::string text{};   ///< "the newest 3"
  std::string rule{};   ///< of "keep": the id of the rule
  bool operator==(const PolicyLine&) const = default;
};

/// Everything that the policy decides, one line per setting, in the order of the topics above. Settings that are off
/// have no line.
std::vector<PolicyLine> policy_lines(const Policy& policy);

struct PolicyChange {
  bool added = false;  ///< else it was removed
  std::string runs{};  ///< the pattern of the policy
  PolicyLine line{};
};

/// The changes from one policy file to another: whole policies, or lines of policies with the same pattern. Empty if
/// nothing that they decide differs (a name, an id, the order of rules may).
std::vector<PolicyChange> policy_changes(const std::vector<Policy>& before, const std::vector<Policy>& after);

/// By index: the policies that never apply, because an earlier one has the same pattern or "*".
std::vector<std::size_t> unreached_policies(const std::vector<Policy>& policies);

}  // namespace ckpt::catalog
