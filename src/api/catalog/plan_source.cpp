#include "api/catalog/plan_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "api/prune_policies.hpp"
#include "catalog/failure_rate.hpp"
#include "catalog/scan/run_history.hpp"

namespace ckpt {
namespace {

void take_failures(const catalog::RunHistory& history, SavePlanRequest& request, PlanSource& out) {
  const double hours = history.uptime_s / 3600;
  if (history.restarts == 0 || !(history.uptime_s > 0)) {
    out.notes.push_back(fmt::format("no restart in {:.3g} h of saves: the failure rate is unknown", hours));
    return;
  }
  const catalog::FailureHistory seen{.uptime_s = history.uptime_s, .failures = history.restarts};
  request.mtbf_low_s = request.mtbf_s = mtbf_quantile(seen, 0.1);
  request.mtbf_high_s = mtbf_quantile(seen, 0.9);
  out.notes.push_back(
      fmt::format("{} restart{} ({} to an earlier step) in {:.3g} h between its saves: one failure in "
                  "{:.3g} h is assumed (10-90 %: {:.3g}-{:.3g} h); restarts after a normal "
                  "end are included, those of deleted checkpoints are not",
                  history.restarts, history.restarts == 1 ? "" : "s", history.roll_backs, hours, request.mtbf_s / 3600,
                  request.mtbf_low_s / 3600, request.mtbf_high_s / 3600));
}

/// The store's rules for saving, for comparison; and failures seen in it.
Result<> take_rules(Io& io, const std::string& store, const std::string& run, SavePlanRequest& request,
                    PlanSource& out) {
  CKPT_TRY(const auto rules, read_store_interval(io, store, run));
  if (!rules) return {};
  out.notes.push_back(fmt::format("the store's ckpt.toml: {}", fmt::join(catalog::interval_meaning(*rules), ", ")));
  if (request.mtbf_s == 0) request.mtbf_s = rules->mtbf_s;
  if (request.restart_s == 0) request.restart_s = rules->restart_s;
  return {};
}

/// The cost of the run's saves.
void take_costs(const catalog::RunHistory& history, const catalog::Entry& entry, SavePlanRequest& request,
                PlanSource& out) {
  const catalog::Costs& costs = history.measured.costs;
  if (history.measured.saves != 0) {
    const double write_s = entry.save ? entry.save->write_s : costs.drain_s - costs.stall_s;
    if (!(request.bandwidth > 0) && write_s > 0) {
      request.bandwidth = static_cast<double>(entry.checkpoint.bytes) / write_s;
      out.notes.push_back(fmt::format("its last save wrote {:.3g} GB/s", request.bandwidth / 1e9));
    }
    if (!request.stall_s && costs.stall_s > 0) {
      request.stall_s = costs.stall_s;
      out.notes.push_back(fmt::format("its saves stalled training for {:.3g} s", costs.stall_s));
    }
  }
  if (request.step_s == 0 && history.measured.step_s > 0) {
    request.step_s = history.measured.step_s;
    out.notes.push_back(fmt::format("its steps took {:.3g} s", request.step_s));
  }
}

}  // namespace

Result<PlanSource> take_from(Session& session, const NamedCheckpoint& checkpoint, SavePlanRequest& request) {
  PlanSource out{.path = checkpoint.word};
  CKPT_TRY(auto named, find_by_name(session.io, checkpoint));
  if (named) {
    const catalog::Entry& entry = named->entry;
    CKPT_TRY(const auto entries, select_entries(named->catalog.database(), {.run = entry.checkpoint.run}));
    out.path = named->path();
    const catalog::RunHistory history = run_history(entries);
    take_costs(history, entry, request, out);
    CKPT_CHECK(take_rules(session.io, named->catalog.store(), entry.checkpoint.run, request, out));
    if (request.mtbf_s == 0) take_failures(history, request, out);
  } else {
    CKPT_TRY(FoundSource found, find_source(session, checkpoint));
    out.path = std::move(found.path);
    if (!found.note.empty()) out.notes.push_back(std::move(found.note));
  }
  CKPT_TRY(const InspectReport seen, inspect(session, out.path, ""));
  if (request.parameters == 0) {
    if (seen.parameter_count == 0) return fail(Errc::usage, out.path + ": no parameters found");
    request.parameters = static_cast<double>(seen.parameter_count);
    if (!request.state_bytes) request.state_bytes = static_cast<double>(seen.file_bytes) / request.parameters;
  }
  out.notes.insert(out.notes.begin(), fmt::format("{} has {} parameters in {} bytes", checkpoint.word,
                                                  seen.parameter_count, seen.file_bytes));
  return out;
}

}  // namespace ckpt
