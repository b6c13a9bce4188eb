#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "catalog/interval_policy.hpp"
#include "catalog/policy.hpp"

namespace ckpt::catalog {

/// The contents of a policy file: what to keep, and when to save.
struct PolicyFile {
  std::vector<Policy> policies{};
  std::vector<RunInterval> run_intervals{};  ///< of [[rule]] tables that have an `interval`, in their order
  std::optional<IntervalRules> interval{};   ///< of [interval]: interval_toml.hpp
};

/// When a run saves: by the first matching [[rule]] with an interval, else by [interval]; null if there is neither.
const IntervalRules* interval_of(const PolicyFile& file, const std::string& run);

/// Reads STORE/ckpt.toml or a file of --policy.
///
/// text         TOML 1.0; the full form ([[keep]] or keep = [...], [policy], [guard], [pressure], [trash]) gives one
///              policy; the short form ([[rule]] tables) one a table, in their order, for which [guard] and [trash]
///              apply too; a table that has only `runs` and `interval` is not a policy, and is allowed with either
///              form. One calendar table of the full form (hourly = 24, daily = 7) gives one rule a member.
/// file         its name, for messages
/// other_keys   members of the top that other parts of the project read
/// errors       usage, "FILE: line L column C: ...": not TOML, an unknown key (with the nearest known one), a value
///              that its key does not take
Result<PolicyFile> parse_policy_file(std::string_view text, const std::string& file,
                                     const std::vector<std::string>& other_keys = {});
/// The same, without when to save.
Result<std::vector<Policy>> parse_policies(std::string_view text, const std::string& file,
                                           const std::vector<std::string>& other_keys = {});

}  // namespace ckpt::catalog
