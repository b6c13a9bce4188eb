#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "catalog/retain.hpp"

/// Retention as its description reads, without any care for speed: to compare with.
namespace ckpt::catalog::model {

struct Answer {
  std::map<std::string, Action> actions{};               ///< by id
  std::map<std::string, std::set<std::string>> rules{};  ///< by id: the rules that keep it, before any pressure
  std::set<std::string> floor{};                         ///< ids that nothing may delete, whatever the policy
  bool aborted = false;
};

Answer retain(const std::vector<Checkpoint>& all, const Policy& policy, const Situation& situation);

}  // namespace ckpt::catalog::model
