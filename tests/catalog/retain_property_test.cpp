// Retention over random histories and policies, against a model that is written from the description with no care for
// speed; what the floor protects, looked up anew; and what planning again says once a plan was carried out.
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include "catalog/random_policy.hpp"
#include "catalog/retain_model.hpp"

namespace ckpt::catalog {
namespace {

std::string shown(const std::vector<Checkpoint>& all, const Policy& policy, const Situation& situation,
                  const Retention& plan) {
  std::string out = policy_text(policy) + "\n";
  for (const std::uint32_t i : plan.order) {
    const Checkpoint& one = all[i];
    out += one.id + " run " + one.run + " series " + std::to_string(one.series) + " step " + std::to_string(one.step) +
           " gen " + std::to_string(one.generation) + " age " + duration_text(elapsed(one.created, situation.now)) +
           ": " + action_name(plan.decisions[i].action) + "  " + why(plan.decisions[i], one, all, policy) + "\n";
  }
  return out;
}

/// Planning again deletes nothing more, except after rules that count from the oldest or the youngest one present, where
/// something else than they (their own limit, or pressure) takes that one away; and except where pressure meets exclusive
/// counting.
bool promises_rest(const Policy& policy) {
  const Pressure& pressure = policy.pressure;
  const bool pressed = pressure.max_size || pressure.min_free || pressure.headroom;
  if (pressed && policy.exclusive) return false;
  return std::none_of(policy.keep.begin(), policy.keep.end(), [&](const Rule& rule) {
    const bool greedy = rule.kind == Rule::Kind::every ||
                        (rule.kind == Rule::Kind::every_steps && rule.step_mode == Rule::StepMode::spaced);
    const bool limited = rule.kind == Rule::Kind::within && rule.max;
    return limited || (greedy && (rule.max || pressed || policy.exclusive));
  });
}

std::vector<Checkpoint> carried_out(const std::vector<Checkpoint>& all, const Retention& plan) {
  std::vector<Checkpoint> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (plan.decisions[i].action == Action::trash) continue;
    out.push_back(all[i]);
    if (plan.decisions[i].action != Action::demote) continue;
    out.back().bytes -= all[i].optimizer_bytes;
    out.back().optimizer_bytes = 0;
  }
  return out;
}

/// What the catalog remembers of series after their checkpoints are gone.
std::vector<SeriesBirth> births_of(const std::vector<Checkpoint>& all, std::vector<SeriesBirth> known) {
  for (const Checkpoint& one : all) {
    const auto same = std::find_if(known.begin(), known.end(), [&](const SeriesBirth& birth) {
      return birth.run == one.run && birth.series == one.series;
    });
    if (same == known.end()) {
      const Time began = std::max(one.created, one.committed);
      known.push_back(
          {.run = one.run, .series = one.series, .from = one.series_from, .after = one.series_after, .began = began});
    } else {
      same->began = std::min(same->began, std::max(one.created, one.committed));
    }
  }
  return known;
}

/// Whether of two saves of a step one goes and one stays, for a reason of its own: the one that stays then stands for the
/// step, and may take another's place in a rule.
bool parts_saves_of_a_step(const std::vector<Checkpoint>& all, const Retention& plan) {
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      const bool same = all[a].run == all[b].run && all[a].step == all[b].step;
      if (same && (plan.decisions[a].action == Action::trash) != (plan.decisions[b].action == Action::trash))
        return true;
    }
  return false;
}

RC_GTEST_PROP(RetainProperty, DecisionsAreThoseOfTheModel, ()) {
  const std::vector<Checkpoint> all = any_history();
  const Policy policy = any_policy();
  const Situation situation = any_situation();
  const auto plan = retain(all, policy, situation);
  RC_ASSERT(plan.has_value() == !is_empty(policy));
  if (!plan) return;
  const model::Answer answer = model::retain(all, policy, situation);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Decision& decision = plan->decisions[i];
    if (decision.action != answer.actions.at(all[i].id))
      RC_FAIL(all[i].id + " should be " + action_name(answer.actions.at(all[i].id)) + "\n" +
              shown(all, policy, situation, *plan));
    std::set<std::string> rules;
    for (const Reason& reason : decision.reasons) {
      if (reason.cause == Reason::Cause::rule || reason.cause == Reason::Cause::relaxed)
        rules.insert(policy.keep[reason.rule].id);
    }
    const auto expected = answer.rules.find(all[i].id);
    if (rules != (expected == answer.rules.end() ? std::set<std::string>{} : expected->second))
      RC_FAIL(all[i].id + ": other rules keep it\n" + shown(all, policy, situation, *plan));
  }
  RC_ASSERT(plan->aborted.has_value() == answer.aborted);
}

RC_GTEST_PROP(RetainProperty, WhatTheFloorProtectsIsNeverDeleted, ()) {
  const std::vector<Checkpoint> all = any_history();
  const Policy policy = any_policy();
  const Situation situation = any_situation();
  const auto plan = retain(all, policy, situation);
  if (!plan) return;
  const model::Answer answer = model::retain(all, policy, situation);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Checkpoint& one = all[i];
    const Action action = plan->decisions[i].action;
    const bool lost = action == Action::trash || action == Action::demote;
    if (!lost) continue;
    RC_ASSERT(!answer.floor.contains(one.id));
    RC_ASSERT(one.readers.empty() && one.references.empty() && one.trackers.empty() && !one.marks_unreadable &&
              !one.link);
    RC_ASSERT(one.state != State::uncommitted && one.state != State::unreadable && one.state != State::repairable);
    RC_ASSERT(!one.foreign || elapsed(one.created, situation.now) >= policy.guard.foreign_min_age);
    RC_ASSERT(std::none_of(one.pins.begin(), one.pins.end(),
                           [&](const Pin& pin) { return !pin.until || situation.now < *pin.until; }));
  }
  // Of each run something that can be loaded stays whole, where there was any.
  if (policy.group_by != std::vector<std::string>{"run"}) return;
  for (const char* run : {"r", "q"}) {
    int before = 0;
    int after = 0;
    int there = 0;
    int left = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      // Nor is any run emptied, be everything in it corrupt.
      const bool is_one = all[i].run == run && !all[i].link && all[i].state != State::uncommitted;
      there += is_one ? 1 : 0;
      left += is_one && plan->decisions[i].action != Action::trash ? 1 : 0;
      const bool whole =
          all[i].run == run && !all[i].link && (all[i].state == State::committed || all[i].state == State::verified);
      before += whole ? 1 : 0;
      after += whole && plan->decisions[i].action == Action::keep ? 1 : 0;
    }
    RC_ASSERT(before == 0 || after != 0);
    RC_ASSERT(there == 0 || left != 0);
  }
}

RC_GTEST_PROP(RetainProperty, PlanningAgainDeletesNothingMore, ()) {
  const std::vector<Checkpoint> all = any_history();
  const Policy policy = any_policy();
  Situation situation = any_situation();
  situation.approved = true;
  if (is_empty(policy) || !promises_rest(policy)) return;
  const auto plan = retain(all, policy, situation);
  RC_ASSERT(plan.has_value());
  if (parts_saves_of_a_step(all, *plan)) return;
  const std::vector<Checkpoint> rest = carried_out(all, *plan);
  situation.births = births_of(all, situation.births);
  if (situation.space) situation.space->trash_bytes += plan->freed_bytes;
  const auto again = retain(rest, policy, situation);
  RC_ASSERT(again.has_value());
  if (again->trash_count != 0)
    RC_FAIL(shown(all, policy, situation, *plan) + "\nthen\n" + shown(rest, policy, situation, *again));
}

RC_GTEST_PROP(RetainProperty, TheOrderOfTheListSaysNothing, ()) {
  std::vector<Checkpoint> all = any_history();
  const Policy policy = any_policy();
  const Situation situation = any_situation();
  const auto plan = retain(all, policy, situation);
  if (!plan) return;
  std::vector<Checkpoint> turned(all.rbegin(), all.rend());
  const auto other = retain(turned, policy, situation);
  for (std::size_t i = 0; i < all.size(); ++i)
    RC_ASSERT(plan->decisions[i].action == other->decisions[all.size() - 1 - i].action);
}

}  // namespace
}  // namespace ckpt::catalog
