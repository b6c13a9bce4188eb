#include "api/catalog/policy_file.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "api/catalog/store_catalog.hpp"
#include "catalog/index/catalog.hpp"
#include "engine/io/replace_file.hpp"
#include "engine/io/stat_if_present.hpp"
#include "engine/store/held_store.hpp"

namespace ckpt {
namespace {

using Applied = CheckedPolicy::Applied;

Error existing(const std::string& path) {
  return {.code = Errc::target_exists,
          .message = path + ": exists, and is not replaced",
          .file = path,
          .hint = "'ckpt policy show' explains it; -n prints the preset"};
}

/// From their text; nothing if this release cannot read it.
std::optional<std::vector<catalog::Policy>> parsed(const AppliedPolicies& applied) {
  std::vector<catalog::Policy> out;
  for (const std::string& text : applied.policies) {
    auto policies = catalog::parse_policies(text, applied.source);
    if (!policies || policies->size() != 1) return std::nullopt;
    out.push_back(std::move(policies->front()));
  }
  return out;
}

std::vector<std::string> fingerprints_of(const std::vector<catalog::Policy>& policies) {
  std::vector<std::string> out;
  for (const catalog::Policy& policy : policies) out.push_back(catalog::fingerprint(policy).hex());
  return out;
}

void compare(const KnownPolicies& known, CheckedPolicy& out) {
  const std::vector<catalog::Policy>& policies = out.file.policies;
  if (!known.last) {
    if (known.fingerprints.empty()) return;
    const auto seen = known.fingerprints.find(std::string(kPolicyFile));
    const bool same = seen != known.fingerprints.end() && seen->second == fingerprints_of(policies);
    out.applied = same ? Applied::same : Applied::unknown;
    return;
  }
  out.applied_source = known.last->source;
  const auto before = parsed(*known.last);
  if (!before) {
    out.applied = Applied::unknown;
  } else if (fingerprints_of(*before) == fingerprints_of(policies)) {
    out.applied = Applied::same;
  } else {
    out.applied = Applied::changed;
    out.changes = catalog::policy_changes(*before, policies);
  }
}

}  // namespace

Result<InitPolicyReport> init_policy(Io& io, const InitPolicyRequest& request) {
  const std::string store = join_path(request.store, "");
  InitPolicyReport out{.path = join_path(store, kPolicyFile)};
  CKPT_TRY(const auto present, stat_if_present(io, out.path));
  if (present && !request.dry_run) return fail(existing(out.path));
  CKPT_TRY(catalog::Catalog catalog, open_catalog(io, store, catalog::Trust::notes, request.now));
  out.warnings = catalog.warnings();
  CKPT_TRY(const auto entries, catalog::select_entries(catalog.database(), {}));
  std::set<std::string> metrics;
  std::set<std::string> tags;
  for (const catalog::Entry& entry : entries) {
    for (const auto& [name, value] : entry.checkpoint.metrics) metrics.insert(name);
    tags.insert(entry.checkpoint.tags.begin(), entry.checkpoint.tags.end());
  }
  out.text = catalog::preset_text(request.preset,
                                  {.metrics = {metrics.begin(), metrics.end()}, .tags = {tags.begin(), tags.end()}});
  if (request.dry_run) return out;
  CKPT_TRY(const auto held, hold_store(io, store));
  auto written = create_file(io, out.path, out.text);
  if (written) return out;
  return fail(written.error().code == Errc::target_exists ? existing(out.path) : std::move(written).error());
}

Result<CheckedPolicy> check_policy(Io& io, const std::string& path, const std::string& store) {
  CheckedPolicy out{.path = path, .store = store};
  CKPT_TRY(out.file, read_policy_file(io, path));
  for (const catalog::Policy& policy : out.file.policies) {
    if (!catalog::is_empty(policy)) continue;
    return fail({.code = Errc::usage,
                 .message = path + ": the policy for '" + policy.runs + "' keeps nothing and would delete everything",
                 .file = path,
                 .hint = "keep at least one, e.g. last = 1"});
  }
  out.unreached = catalog::unreached_policies(out.file.policies);
  compare(read_known_policies(io, store), out);
  return out;
}

}  // namespace ckpt
