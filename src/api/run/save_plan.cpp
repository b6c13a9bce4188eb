#include "api/run/save_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "catalog/policy_flags.hpp"

namespace ckpt {
namespace {

double low_mtbf(const SavePlanRequest& request) {
  return request.mtbf_low_s > 0 ? request.mtbf_low_s : request.mtbf_s / 2;
}
double high_mtbf(const SavePlanRequest& request) {
  return request.mtbf_high_s > 0 ? request.mtbf_high_s : request.mtbf_s * 2;
}

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
    const auto lost_with = [&](double mtbf_s) {
      catalog::Costs other = costs;
      other.mtbf_s = mtbf_s;
      return 1 - catalog::goodput(out.chosen_s, other);
    };
    out.lost = lost_with(costs.mtbf_s);
    out.lost_low = lost_with(high_mtbf(request));
    out.lost_high = lost_with(low_mtbf(request));
    out.lost_base = 1 - catalog::goodput(out.base.interval_s, costs);
    out.loss_at_failure_s = catalog::expected_loss(out.chosen_s, costs);
  }
  return out;
}

/// Saves to the nodes' own disks, drained in the background.
SaveChoice choose_tiers(const catalog::Costs& near, double drain_s, const SavePlanRequest& request) {
  SaveChoice out = choose("tiers", near, request);
  const catalog::DrainedTiers tiers{.near = near, .drain_s = drain_s, .lost = request.node_loss};
  const catalog::TwoTiers best = best_tiers(tiers);
  out.remote_every = std::max<std::uint64_t>(best.every, 1);
  if (best.interval_s == 0) {  // nothing known of failures: the base rule, and the drain keeps up
    out.remote_every = static_cast<std::uint64_t>(std::clamp(std::ceil(1.1 * drain_s / out.chosen_s), 1.0, 1e9));
    return out;
  }
  out.best_s = best.interval_s;
  out.reason = best.interval_s * static_cast<double>(best.every) <= 1.1001 * drain_s ? "drain" : "failure rate";
  out.chosen_s = best.interval_s;
  if (request.step_s > 0) {
    out.steps = catalog::aligned_steps(out.chosen_s, request.step_s);
    out.chosen_s = static_cast<double>(out.steps) * request.step_s;
  }
  out.overhead = catalog::overhead(out.chosen_s, near);
  const auto lost_with = [&](double mtbf_s) {
    catalog::DrainedTiers other = tiers;
    other.near.mtbf_s = mtbf_s;
    return std::min(1.0, waste(other, out.chosen_s, out.remote_every));
  };
  out.lost = lost_with(near.mtbf_s);
  out.lost_low = lost_with(high_mtbf(request));
  out.lost_high = lost_with(low_mtbf(request));
  out.lost_base = std::min(1.0, waste(tiers, out.base.interval_s, out.remote_every));
  const double far = out.chosen_s * static_cast<double>(out.remote_every) / 2 + drain_s;
  out.loss_at_failure_s = (1 - tiers.lost) * out.chosen_s / 2 + tiers.lost * far + near.drain_s - near.stall_s;
  return out;
}

/// Blocking first. `disk`: of one checkpoint.
std::vector<SaveChoice> choices_of(const catalog::DiskBytes& disk, const SavePlanRequest& request) {
  const double write_s = disk.total / request.bandwidth;
  const catalog::Costs blocking{
      .stall_s = write_s, .drain_s = write_s, .restart_s = request.restart_s, .mtbf_s = request.mtbf_s};
  std::vector<SaveChoice> out{choose("blocking", blocking, request)};
  if (request.stall_s) {
    catalog::Costs costs = blocking;
    costs.stall_s = *request.stall_s;
    costs.drain_s = std::max(write_s, *request.stall_s);
    out.push_back(choose("async", costs, request));
    out.back().host_bytes = disk.largest_rank;
  }
  if (request.local_bandwidth > 0) {
    catalog::Costs near = blocking;
    const double local_s = disk.total / request.local_bandwidth;
    near.stall_s = request.stall_s.value_or(local_s);
    near.drain_s = std::max(local_s, near.stall_s);
    out.push_back(choose_tiers(near, write_s, request));
    out.back().host_bytes = request.stall_s ? disk.largest_rank : 0;
  }
  return out;
}

void add_sensitivity(SavePlan& plan, const SavePlanRequest& request) {
  if (request.mtbf_s <= 0) return;
  for (const auto& [word, factor] : {std::pair{"1/2", 0.5}, std::pair{"2", 2.0}}) {
    SavePlanRequest other = request;
    other.bandwidth *= factor;
    other.local_bandwidth *= factor;
    plan.sensitivity.push_back({fmt::format("bandwidth x {}", word), choices_of(plan.disk, other)});
  }
  for (const auto& [word, factor] : {std::pair{"1/2", 0.5}, std::pair{"2", 2.0}}) {
    SavePlanRequest other = request;
    other.mtbf_s *= factor;
    other.mtbf_low_s *= factor;
    other.mtbf_high_s *= factor;
    plan.sensitivity.push_back({fmt::format("MTBF x {}", word), choices_of(plan.disk, other)});
  }
}

constexpr double kWorthwhile = 0.98;  // a more complex choice must lose noticeably less

/// Which way to save, and why so often.
void explain(SavePlan& plan, const SavePlanRequest& request) {
  const bool failures = request.mtbf_s > 0;
  for (std::size_t i = 1; i < plan.choices.size(); ++i) {
    const SaveChoice& one = plan.choices[i];
    const SaveChoice& best = plan.choices[plan.chosen];
    if (failures ? one.lost < best.lost * kWorthwhile : one.costs.stall_s < best.costs.stall_s) plan.chosen = i;
  }
  const SaveChoice& chosen = plan.choices[plan.chosen];
  std::string& text = plan.limit;
  std::string head = failures ? fmt::format("{} saves, {:.2f} % lost time", chosen.name, chosen.lost * 100)
                              : fmt::format("{} saves, least stall", chosen.name);
  if (plan.choices.size() == 1) head = fmt::format("{} saves", chosen.name);
  if (chosen.reason == "failure rate") {
    text = "balances the cost of saves against failures";
  } else if (chosen.reason == "drain") {
    text = "limited by the time until a save is durable";
  } else if (chosen.reason == "rework") {
    text = "limited by --rework";
  } else {
    text = "saves at most 5 % of the time";
  }
  if (chosen.remote_every > 1)
    text += fmt::format("; 1 of {} saves goes to the storage, the most it can take", chosen.remote_every);
  plan.explanation = head + "; " + text;
}

ModelSize size_of(std::string name, double parameters, const catalog::StateBytes& state,
                  const SavePlanRequest& request) {
  ModelSize out{.name = std::move(name), .parameters = parameters};
  out.disk = catalog::disk_bytes(parameters, state, request.sharding);
  out.memory = catalog::memory_table(parameters, state, request.sharding);
  if (!request.rank_memory) return out;
  const auto found = std::find_if(out.memory.begin(), out.memory.end(), [&](const catalog::MemoryBytes& row) {
    return catalog::fits(row, *request.rank_memory);
  });
  if (found != out.memory.end()) out.fits = static_cast<std::size_t>(found - out.memory.begin());
  return out;
}

void add_models(SavePlan& plan, const catalog::StateBytes& state, const SavePlanRequest& request) {
  for (const auto& [name, parameters] :
       {std::pair{"7B", 7e9}, std::pair{"13B", 13e9}, std::pair{"70B", 70e9}, std::pair{"175B", 175e9}})
    plan.models.push_back(size_of(name, parameters, state, request));
  const auto larger = std::find_if(plan.models.begin(), plan.models.end(),
                                   [&](const ModelSize& model) { return model.parameters >= request.parameters; });
  if (larger == plan.models.end() || larger->parameters > request.parameters)
    plan.models.insert(larger,
                       size_of(fmt::format("{:.3g}B", request.parameters / 1e9), request.parameters, state, request));
}

void add_volume(SavePlan& plan, const SavePlanRequest& request) {
  const SaveChoice& chosen = plan.choices[plan.chosen];
  // Saves that reach the storage: with tiers only every k-th.
  const double between =
      (chosen.chosen_s + chosen.costs.stall_s) * static_cast<double>(std::max<std::uint64_t>(chosen.remote_every, 1));
  if (!(between > 0)) return;
  plan.bytes_a_day = plan.disk.total * 86'400 / between;
  plan.trashed = most_in_trash(request.trash_s, between);
  if (plan.kept)
    plan.peak_bytes = plan.disk.total * (static_cast<double>(*plan.kept) + 1 + static_cast<double>(plan.trashed));
}

void warn(SavePlan& plan, const SavePlanRequest& request) {
  if (request.mtbf_s <= 0) plan.warnings.push_back("no failure rate given: only the rule of thumb applies");
  for (const SaveChoice& choice : plan.choices) {
    if (choice.base.rework_missed)
      plan.warnings.push_back(
          fmt::format("{}: because of the {}, the rule of thumb saves less often than --rework requires", choice.name,
                      catalog::limit_name(choice.base.limit)));
    if (choice.base.saves_too_rarely)
      plan.warnings.push_back(
          fmt::format("{}: fewer than 200 saves per failure: the rule of thumb saves too rarely", choice.name));
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
  if (!(request.parameters >= 1)) return fail(Errc::usage, "the number of parameters is missing");
  if (!(request.node_loss >= 0 && request.node_loss <= 1))
    return fail(Errc::usage, "the share of lost disks must be from 0 to 1");
  if (!(request.bandwidth > 0)) return fail(Errc::usage, "the bandwidth of the storage is missing");
  CKPT_TRY(catalog::StateBytes state, catalog::state_preset(request.precision));
  if (request.state_bytes) {
    // Parts as in the preset; the difference belongs to the optimizer.
    state.weights = std::min(state.weights, *request.state_bytes);
    state.master = std::min(state.master, *request.state_bytes - state.weights);
    state.moments = *request.state_bytes - state.weights - state.master;
  }
  SavePlan out;
  out.disk = catalog::disk_bytes(request.parameters, state, request.sharding);
  out.write_s = out.disk.total / request.bandwidth;
  out.choices = choices_of(out.disk, request);
  out.bandwidth_wanted = catalog::bandwidth_for(out.disk.total, request.rework_s);
  CKPT_CHECK(count_kept(out, request));
  ModelSize own = size_of("", request.parameters, state, request);
  out.memory = std::move(own.memory);
  out.fits = own.fits;
  add_models(out, state, request);
  add_sensitivity(out, request);
  explain(out, request);
  add_volume(out, request);
  warn(out, request);
  const catalog::Sharding& ranks = request.sharding;
  const double count =
      static_cast<double>(ranks.tensor) * static_cast<double>(ranks.pipeline) * static_cast<double>(ranks.data);
  out.gpus = request.gpus;
  if (out.gpus == 0 && count > 1 && count < 1e15) out.gpus = static_cast<std::uint64_t>(count);
  return out;
}

double lost_share(const SaveChoice& choice) {
  return choice.costs.mtbf_s > 0 ? choice.lost : choice.overhead;
}

double gpu_hours_a_day(const SavePlan& plan, const SaveChoice& choice) {
  return static_cast<double>(plan.gpus) * 24 * lost_share(choice);
}

std::uint64_t most_in_trash(double trash_s, double between_saves_s) {
  if (!(trash_s > 0) || !(between_saves_s > 0)) return 0;
  return static_cast<std::uint64_t>(std::min(std::ceil(trash_s / between_saves_s), 1e15));
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
  if (choice.base.interval_s > 0) out.push_back({choice.base.interval_s, "rule of thumb"});
  return out;
}

}  // namespace ckpt
