#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/prune_policies.hpp"
#include "catalog/bucket.hpp"
#include "catalog/policy_presets.hpp"
#include "catalog/report/policy_text.hpp"

/// The policy file of a store: `ckpt policy init` and `ckpt policy check`.
namespace ckpt {

struct InitPolicyRequest {
  std::string store;
  catalog::Preset preset = catalog::Preset::research;
  bool dry_run = false;
  catalog::Time now{};
};
struct InitPolicyReport {
  std::string path{};  ///< STORE/ckpt.toml
  std::string text{};
  std::vector<std::string> warnings{};
};
/// Writes a preset, adapted to the metrics and tags of the store, durably and never over an existing file.
/// errors  target_exists; not_found: the store; not_durable: written; io
Result<InitPolicyReport> init_policy(Io& io, const InitPolicyRequest& request);

struct CheckedPolicy {
  std::string path{};
  std::string store{};
  catalog::PolicyFile file{};
  std::vector<std::size_t> unreached{};  ///< policies that never apply
  enum class Applied : std::uint8_t {
    never,    ///< no prune has carried out a policy in the store
    same,     ///< the last prune used the same
    changed,  ///< `changes` since the last prune; empty if only names or the order differ
    unknown,  ///< changed, but what the last prune used is not recorded
  } applied = Applied::never;
  std::string applied_source{};  ///< of what the last prune used: "ckpt.toml", "the command line"
  std::vector<catalog::PolicyChange> changes{};
};
/// Reads a policy file, and compares it with what the last prune of `store` used.
/// errors  usage: "FILE: line L column C: ..."; not_found; io
Result<CheckedPolicy> check_policy(Io& io, const std::string& path, const std::string& store);

}  // namespace ckpt
