#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "catalog/report/explain.hpp"
#include "catalog/retain.hpp"

/// Short ways to make checkpoints and to say what was decided, for tests.
namespace ckpt::catalog {

constexpr Duration kMinute = std::chrono::minutes(1);
constexpr Duration kHour = std::chrono::hours(1);
constexpr Duration kDay = std::chrono::hours(24);
constexpr Time kStart{std::chrono::sys_days{std::chrono::year{2026} / 1 / 1}};

/// One checkpoint of run "r": 10 GiB, of which 6 are the optimizer's.
inline Checkpoint saved(std::uint64_t step, Duration after = {}, State state = State::committed) {
  Checkpoint one;
  one.id = "id" + std::to_string(step);
  one.run = "r";
  one.step = step;
  one.generation = step + 1;
  one.created = kStart + after;
  one.state = state;
  one.bytes = 10ull << 30;
  one.optimizer_bytes = 6ull << 30;
  return one;
}

/// One a step of `steps`, an hour apart.
inline std::vector<Checkpoint> hourly(std::initializer_list<std::uint64_t> steps) {
  std::vector<Checkpoint> out;
  for (const std::uint64_t step : steps) out.push_back(saved(step, kHour * static_cast<int>(out.size())));
  return out;
}

inline Rule rule(Rule::Kind kind, std::optional<std::uint64_t> count = {}) {
  return {.id = kind_name(kind), .kind = kind, .count = count};
}

inline Policy policy(std::vector<Rule> rules) {
  Policy out;
  out.keep = std::move(rules);
  return out;
}

/// The steps with one of these actions.
inline std::vector<std::uint64_t> steps_with(const Retention& plan, const std::vector<Checkpoint>& all,
                                             std::set<Action> actions) {
  std::vector<std::uint64_t> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (actions.contains(plan.decisions[i].action)) out.push_back(all[i].step);
  }
  std::sort(out.begin(), out.end());
  return out;
}
inline std::vector<std::uint64_t> kept(const Retention& plan, const std::vector<Checkpoint>& all) {
  return steps_with(plan, all, {Action::keep, Action::demote});
}
inline std::vector<std::uint64_t> trashed(const Retention& plan, const std::vector<Checkpoint>& all) {
  return steps_with(plan, all, {Action::trash});
}

inline std::string why_of(const Retention& plan, const std::vector<Checkpoint>& all, const Policy& policy,
                          std::size_t index) {
  return why(plan.decisions[index], all[index], all, policy);
}

}  // namespace ckpt::catalog
