#include "api/catalog/simulate_prune.hpp"

#include <fmt/format.h>

#include <utility>

#include "api/catalog/store_catalog.hpp"
#include "catalog/index/catalog.hpp"

namespace ckpt {
namespace {

using catalog::Entry;

/// The share of the optimizer in a mixed-precision checkpoint: 12 of 14 bytes per parameter.
std::uint64_t optimizer_share(std::uint64_t bytes) {
  return bytes - bytes / 7;
}

const Entry* last_saved(const std::vector<Entry>& entries, const std::vector<catalog::Policy>& policies,
                        const catalog::Policy& policy) {
  const Entry* out = nullptr;
  for (const Entry& entry : entries) {
    if (entry.checkpoint.bytes == 0 || catalog::policy_of(policies, entry.checkpoint.run) != &policy) continue;
    if (out == nullptr || out->checkpoint.created < entry.checkpoint.created) out = &entry;
  }
  return out;
}

}  // namespace

Result<SimulateReport> simulate_prune(Io& io, const SimulateRequest& request) {
  SimulateReport out{.store = join_path(request.store, "")};
  CKPT_TRY(const Policies read, read_policies(io, out.store, request.policy));
  out.source = read.source;
  out.differences = read.differences;
  std::vector<Entry> entries;
  if (!request.bytes) {
    CKPT_TRY(catalog::Catalog catalog, open_catalog(io, out.store, catalog::Trust::notes, request.now));
    out.warnings = catalog.warnings();
    CKPT_TRY(entries, catalog::select_entries(catalog.database(), {}));
  }
  const bool recycles = io.recycles(out.store);
  bool wanted = false;
  for (const catalog::Policy& policy : read.policies) {
    SimulatedPolicy one{.policy = policy};
    wanted = wanted || policy.trash.recycle != 0;
    if (!recycles) one.policy.trash.recycle = 0;
    one.schedule = {.interval = request.interval, .until = request.until, .step_time = request.step_time};
    if (request.bytes) {
      one.schedule.bytes = *request.bytes;
      one.schedule.optimizer_bytes = optimizer_share(*request.bytes);
    } else {
      const Entry* like = last_saved(entries, read.policies, policy);
      if (like == nullptr)
        return fail({.code = Errc::usage,
                     .message = fmt::format("{}: no checkpoint of '{}' to take the size from", out.store, policy.runs),
                     .hint = "give --checkpoint-size"});
      one.schedule.bytes = like->checkpoint.bytes;
      one.schedule.optimizer_bytes = like->checkpoint.optimizer_bytes;
      one.like = join_path(like->checkpoint.run, like->name);
    }
    CKPT_TRY(one.outcome, catalog::simulate(one.policy, one.schedule));
    out.policies.push_back(std::move(one));
  }
  if (wanted && !recycles) out.warnings.emplace_back(kNoRecycling);
  return out;
}

}  // namespace ckpt
