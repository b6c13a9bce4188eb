#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "catalog/interval_policy.hpp"
#include "catalog/policy.hpp"
#include "catalog/policy_import.hpp"
#include "engine/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Where a policy comes from.
struct PolicyWords {
  std::string file{};                                        ///< "" = STORE/ckpt.toml
  std::vector<std::pair<std::string, std::string>> flags{};  ///< catalog::policy_flags, as given
  std::string import_system{};                               ///< catalog::foreign_systems; "" = none
  catalog::ForeignOptions import_options{};
};

struct Policies {
  std::string source{};  ///< "ckpt.toml", "the command line", "--import-policy orbax"
  std::vector<catalog::Policy> policies{};
  std::vector<std::string> differences{};            ///< from what another system would do
  std::optional<catalog::IntervalRules> interval{};  ///< of a file: when to save
};

/// The policies of a prune: rules of the command line or of another system stand alone; without any, those of the file,
/// with what other flags say (limits, grace) in each.
/// errors  usage: two sources, an empty policy or what the readers of policies refuse; not_found: no file, and no rules
Result<Policies> read_policies(Io& io, const std::string& store, const PolicyWords& words);

/// [interval] of STORE/ckpt.toml; nothing where there is no such file or table. errors  usage: the file is wrong; io
Result<std::optional<catalog::IntervalRules>> read_store_interval(Io& io, const std::string& store);

/// Which policies a store was pruned by before, by their sources: STORE/.ckpt/policies.json. What cannot be read is
/// forgotten: all policies then are new.
using KnownPolicies = std::map<std::string, std::vector<std::string>>;  // source -> fingerprints
KnownPolicies read_known_policies(Io& io, const std::string& store);
/// Durable. Only while the store's trash is open.
Result<> write_known_policies(Io& io, const std::string& store, const KnownPolicies& known);

}  // namespace ckpt
