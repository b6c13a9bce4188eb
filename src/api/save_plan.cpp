#include "api/save_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "catalog/policy_flags.hpp"

namespace ckpt {
namespace {

SaveChoice choose(std::string name, const catalog::Costs& costs, const SavePlanRequest& request) {
  SaveChoice out{.name = std::move(name), .costs = costs};
  out.young_s = catalog::young(costs);
  out.daly_s = catalog::daly(costs);
  out.best_s = catalog::best_interval(costs);
  out.base = catalog::base_rule(request.rework_s, costs);
  out.chosen_s = out.best_s;
  out.reason = "failure rate";
  if (out.best_s == 0) {
    out.chosen_s = out.base.interval_s;
    out.reason = catalog::limit_name(out.base.limit);
  } else if (const double drain = 1.1 * costs.drain_s; costs.drain_s > costs.stall_s && drain > out.best_s) {
    out.chosen_s = drain;
    out.reason = catalog::limit_name(catalog::BaseRule::Limit::drain);
  }
  if (request.step_s > 0) {
    out.steps = catalog::aligned_steps(out.chosen_s, request.step_s);
    out.chosen_s = static_cast<double>(out.steps) * request.step_s;
  }
  out.overhead = catalog::overhead(out.chosen_s, costs);
  if (costs.mtbf_s > 0) {
    out.lost = 1 - catalog::goodput(out.chosen_s, costs);
    out.lost_base = 1 - catalog::goodput(out.base.interval_s, costs);
    out.loss_at_failure_s = catalog::expected_loss(out.chosen_s, costs);
  }
  return out;
}

void warn(SavePlan& plan, const SavePlanRequest& request) {
  if (request.mtbf_s <= 0) plan.warnings.push_back("no failure rate is given: the base rule decides alone");
  for (const SaveChoice& choice : plan.choices) {
    if (choice.base.rework_missed)
      plan.warnings.push_back(
          fmt::format("{}: the {} lets the base rule save less often than the rework limit asks for", choice.name,
                      catalog::limit_name(choice.base.limit)));
    if (choice.base.saves_too_rarely)
      plan.warnings.push_back(
          fmt::format("{}: failures come less than 200 saves apart: the base rule saves too rarely", choice.name));
  }
}

Result<> count_kept(SavePlan& plan, const SavePlanRequest& request) {
  catalog::Policy policy;
  for (const std::string& word : request.keep) CKPT_CHECK(catalog::add_flag(policy, "keep", word));
  if (policy.keep.empty()) return {};
  std::uint64_t kept = 0;
  for (const catalog::Rule& rule : policy.keep) {
    const bool listed = rule.kind == catalog::Rule::Kind::steps;
    const auto limit = rule.count ? rule.count : rule.max;
    if (!limit && !listed) {
      plan.unbounded = true;
      return {};
    }
    if (__builtin_add_overflow(kept, listed ? rule.steps.size() : *limit, &kept)) {
      plan.unbounded = true;
      return {};
    }
  }
  plan.kept = kept;
  return {};
}

}  // namespace

Result<SavePlan> plan_saves(const SavePlanRequest& request) {
  if (!(request.parameters >= 1)) return fail(Errc::usage, "plan: the number of parameters is not given");
  if (!(request.bandwidth > 0)) return fail(Errc::usage, "plan: the bandwidth of the storage is not given");
  CKPT_TRY(catalog::StateBytes state, catalog::state_preset(request.precision));
  if (request.state_bytes) {
    // The parts are as in the preset; what is more or less is the optimizer's.
    state.weights = std::min(state.weights, *request.state_bytes);
    state.master = std::min(state.master, *request.state_bytes - state.weights);
    state.moments = *request.state_bytes - state.weights - state.master;
  }
  SavePlan out;
  out.disk = catalog::disk_bytes(request.parameters, state, request.sharding);
  out.write_s = out.disk.total / request.bandwidth;
  const catalog::Costs blocking{
      .stall_s = out.write_s, .drain_s = out.write_s, .restart_s = request.restart_s, .mtbf_s = request.mtbf_s};
  out.choices.push_back(choose("blocking", blocking, request));
  if (request.stall_s) {
    catalog::Costs costs = blocking;
    costs.stall_s = *request.stall_s;
    costs.drain_s = std::max(out.write_s, *request.stall_s);
    out.choices.push_back(choose("async", costs, request));
  }
  out.bandwidth_wanted = catalog::bandwidth_for(out.disk.total, request.rework_s);
  CKPT_CHECK(count_kept(out, request));
  out.memory = catalog::memory_table(request.parameters, state, request.sharding);
  if (request.rank_memory) {
    const auto found = std::find_if(out.memory.begin(), out.memory.end(), [&](const catalog::MemoryBytes& row) {
      return catalog::fits(row, *request.rank_memory);
    });
    if (found != out.memory.end()) out.fits = static_cast<std::size_t>(found - out.memory.begin());
  }
  warn(out, request);
  return out;
}

std::vector<catalog::CurvePoint> curve_of(const SaveChoice& choice, std::size_t count) {
  if (!(choice.costs.mtbf_s > 0)) return {};
  const double shortest =
      choice.base.interval_s > 0 ? std::min(choice.chosen_s, choice.base.interval_s) : choice.chosen_s;
  return catalog::curve(choice.costs, shortest / 3, std::max(choice.chosen_s, choice.base.interval_s) * 10, count);
}

std::vector<catalog::CurveMark> marks_of(const SaveChoice& choice) {
  std::vector<catalog::CurveMark> out;
  if (choice.best_s > 0) out.push_back({choice.best_s, "best"});
  if (choice.base.interval_s > 0) out.push_back({choice.base.interval_s, "base rule"});
  return out;
}

}  // namespace ckpt
