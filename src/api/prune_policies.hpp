#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "catalog/interval_policy.hpp"
#include "catalog/policy.hpp"
#include "catalog/policy_import.hpp"
#include "catalog/policy_toml.hpp"
#include "catalog/scan/entry.hpp"
#include "engine/io/io.hpp"
#include "engine/store/inbox.hpp"
#include "format/result.hpp"

namespace ckpt {

/// The policy of a store, in its directory.
inline constexpr std::uint64_t kMostPolicyBytes = std::uint64_t{1} << 20;
/// For a policy that recycles on a file system that does not benefit from it.
inline constexpr const char* kNoRecycling =
    "recycle: no benefit on this file system: deleted checkpoints wait in the trash";

/// The source of a policy.
struct PolicyWords {
  std::string file{};                                        ///< "" = STORE/ckpt.toml
  std::vector<std::pair<std::string, std::string>> flags{};  ///< catalog::policy_flags, as given
  std::string import_system{};                               ///< catalog::foreign_systems; "" = none
  catalog::ForeignOptions import_options{};
};

struct Policies {
  std::string source{};  ///< "ckpt.toml", "the command line", "--import-policy orbax"
  std::vector<catalog::Policy> policies{};
  bool replaces_file = false;                         ///< the store has a policy file, which is not used
  std::vector<std::string> differences{};             ///< from the behaviour of another system
  std::vector<catalog::RunInterval> run_intervals{};  ///< of a file: when runs of a rule save
  std::optional<catalog::IntervalRules> interval{};   ///< and all others
};

/// The policies of a prune: rules from the command line or of another system apply alone; without any, those of the
/// file, with the other options (limits, grace) in each.
/// errors  usage: two sources, an empty policy or a refused one; not_found: no file, and no rules
Result<Policies> read_policies(Io& io, const std::string& store, const PolicyWords& words);

/// The runs of these checkpoints about which a ckpt.toml nearer than the store's decides, and its directory: the run's own,
/// or the first above it in the store.
std::map<std::string, std::string> nearer_policies(Io& io, const std::string& store,
                                                   std::span<const catalog::Entry> entries);

/// A policy file as it is.
/// errors  not_found; usage: the file is wrong; io
Result<catalog::PolicyFile> read_policy_file(Io& io, const std::string& path);

/// The policies by which checkpoints that a person names are deleted: guards and grace of STORE/ckpt.toml, else the
/// defaults; no rules, no pressure, no recycling. The last one matches every run.
/// errors  usage: the file is wrong; io
Result<Policies> read_removal_policies(Io& io, const std::string& store);

/// When a run saves by STORE/ckpt.toml (catalog::interval_of); nothing if there is no such file, or it does not say.
/// errors  usage: the file is wrong; io
Result<std::optional<catalog::IntervalRules>> read_store_interval(Io& io, const std::string& store,
                                                                  const std::string& run);
/// The path in the store of the run that saves in this directory; its last name if it is elsewhere.
std::string run_in_store(const std::string& store, const std::string& run_directory);

/// Policies that were carried out, in full.
struct AppliedPolicies {
  std::string source{};                 ///< Policies::source
  std::vector<std::string> policies{};  ///< policy_text of each
  bool operator==(const AppliedPolicies&) const = default;
};
/// The policies by which a store was pruned before: STORE/.ckpt/policies.json. If it cannot be read, all policies are
/// new.
struct KnownPolicies {
  std::map<std::string, std::vector<std::string>> fingerprints{};  ///< by source
  std::optional<AppliedPolicies> last{};  ///< nothing: none, too long to record, or of a release without such records
};
KnownPolicies read_known_policies(Io& io, const std::string& store);
/// Durable. Only while the store's trash is open.
Result<> write_known_policies(Io& io, const std::string& store, const KnownPolicies& known);

}  // namespace ckpt
