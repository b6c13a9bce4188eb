#pragma once

#include <rapidcheck.h>

#include <cmath>

#include "catalog/history.hpp"
#include "catalog/policy_flags.hpp"

/// Random policies and histories, small enough that rules meet often.
namespace ckpt::catalog {

template <class T>
T pick(T least, T most) {
  return *rc::gen::inRange<T>(least, static_cast<T>(most + 1));
}
inline bool chance(int percent) {
  return *rc::gen::inRange(0, 100) < percent;
}

inline Rule any_rule() {
  Rule rule;
  rule.kind = static_cast<Rule::Kind>(pick(0, static_cast<int>(Rule::Kind::tags_any)));
  const bool limited = !is_calendar(rule.kind) && rule.kind != Rule::Kind::last && rule.kind != Rule::Kind::first;
  switch (rule.kind) {
    case Rule::Kind::every_steps:
      rule.step_interval = pick<std::uint64_t>(1, 12);
      rule.step_mode = static_cast<Rule::StepMode>(pick(0, 2));
      break;
    case Rule::Kind::every:
    case Rule::Kind::within:
      rule.duration = kMinute * pick(1, 60 * 30);
      if (rule.kind == Rule::Kind::within) rule.from = chance(50) ? Rule::From::now : Rule::From::newest;
      break;
    case Rule::Kind::steps:
      rule.steps = *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(0, 30));
      break;
    case Rule::Kind::tags_any:
      rule.tags = {chance(50) ? "a" : "b"};
      break;
    default:
      if (!chance(10)) rule.count = pick<std::uint64_t>(0, 5);
  }
  if (rule.kind == Rule::Kind::best) {
    rule.metric = chance(70) ? "loss" : "acc";
    rule.better = chance(50) ? Rule::Better::lower : Rule::Better::higher;
    rule.missing = chance(30) ? Rule::Missing::keep : Rule::Missing::drop;
    rule.nan = chance(50) ? Rule::Nan::worst : Rule::Nan::missing;
  }
  if (is_calendar(rule.kind)) rule.oldest_if_short = chance(50);
  if (limited && !rule.count && chance(40)) rule.max = pick<std::uint64_t>(0, 4);
  if (chance(15))
    rule.where = *Filter::parse(chance(50) ? "tag == 'a' or step < 15" : "kind == 'all' and not step == 3");
  return rule;
}

inline Policy any_policy() {
  Policy policy;
  const int rules = pick(1, 5);
  for (int i = 0; i < rules; ++i) {
    Rule rule = any_rule();
    rule.id = free_id(policy, kind_name(rule.kind));
    policy.keep.push_back(std::move(rule));
  }
  policy.exclusive = chance(30);
  policy.zone.east = std::chrono::minutes(pick(-720, 720));
  if (chance(15)) policy.group_by = {"run", "kind"};
  if (chance(40)) policy.drop_optimizer_after = kHour * pick(0, 100);
  policy.guard.newest = pick<std::uint64_t>(0, 2);
  policy.guard.newest_verified = pick<std::uint64_t>(0, 2);
  policy.guard.resume_source = chance(80);
  policy.guard.min_age = chance(30) ? kHour * pick(0, 10) : Duration{};
  policy.guard.foreign_min_age = chance(50) ? kForeignMinAge : kHour * pick(0, 40);
  policy.guard.min_keep = pick<std::uint64_t>(0, 4);
  policy.guard.max_delete_fraction = static_cast<double>(pick(0, 10)) / 10;
  policy.guard.require_verified_successor = chance(20);
  policy.trash.ttl = kHour * pick(0, 30);
  if (chance(30)) {
    if (chance(60)) policy.pressure.max_size = Amount{.bytes = pick<std::uint64_t>(0, 200) << 30};
    if (chance(40)) policy.pressure.min_free = Amount{.percent = pick(0, 100)};
    if (chance(20)) policy.pressure.headroom = pick(0, 6) / 2.0;
    if (chance(50)) {
      for (const Rule& rule : policy.keep)
        (is_breakable(rule.kind) && chance(60) ? policy.pressure.relax : policy.pressure.never).push_back(rule.id);
    }
  }
  return policy;
}

/// Checkpoints of one or two runs, with clocks that jump, series, saves of one step again, and everything that
/// protects.
inline std::vector<Checkpoint> any_history() {
  std::vector<Checkpoint> out;
  const std::size_t size = pick<std::size_t>(0, 28);
  Duration clock = kDay;
  std::uint64_t series[2] = {0, 0};
  std::optional<std::uint64_t> from[2];
  std::optional<std::uint64_t> after[2];
  std::uint64_t step[2] = {0, 0};
  std::uint64_t generation[2] = {0, 0};
  const bool foreign = chance(10);
  const bool bad_disk = chance(8);
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t r = chance(80) ? 0 : 1;
    if (chance(8)) {  // a later series: from an earlier step, or one that supersedes nothing
      ++series[r];
      from[r].reset();
      after[r].reset();
      if (chance(75)) from[r] = step[r] = step[r] - std::min<std::uint64_t>(step[r], pick<std::uint64_t>(0, 6));
      if (!from[r]) step[r] = pick<std::uint64_t>(0, 5);
      if (from[r] && chance(30)) after[r] = pick<std::uint64_t>(0, series[r] - 1);  // back to what was superseded
    }
    step[r] += chance(10) ? 0 : pick<std::uint64_t>(1, 4);
    clock += chance(6) ? kHour * pick(-30, 30) : kMinute * pick(0, 300);
    Checkpoint one = saved(step[r], clock);
    one.id = "c" + std::to_string(i);
    one.run = r == 0 ? "r" : "q";
    one.series = series[r];
    one.series_from = from[r];
    one.series_after = after[r];
    one.generation = foreign ? 0 : ++generation[r];
    one.foreign = foreign;
    if (chance(20)) one.committed = one.created + kHour * pick(-5, 60);
    one.state = chance(40) ? State::verified : State::committed;
    if (chance(12)) one.state = static_cast<State>(pick(0, 3));
    if (bad_disk) one.state = chance(80) ? State::corrupt : one.state;
    one.bytes = pick<std::uint64_t>(1, 20) << 30;
    one.optimizer_bytes = chance(20) ? 0 : one.bytes / 2;
    if (chance(70))
      one.metrics.emplace_back("loss", chance(10) ? std::nan("") : chance(5) ? -HUGE_VAL : pick(0, 6) / 2.0);
    if (chance(20)) one.metrics.emplace_back("acc", pick(0, 3));
    if (chance(10)) one.tags.push_back("a");
    if (chance(5)) one.tags.push_back("b");
    one.attributes = {{"kind", chance(70) ? "all" : "weights"}};
    if (chance(5))
      one.pins.push_back({.until = chance(50) ? std::optional(kStart + clock + kHour * pick(-20, 60)) : std::nullopt});
    if (chance(4)) one.readers.push_back("host");
    if (chance(4)) one.references.push_back("other");
    if (chance(3)) one.trackers.push_back("latest");
    if (chance(4)) one.resume_source = true;
    if (chance(3)) one.marks_unreadable = true;
    if (chance(3)) one.link = true;
    if (chance(3)) one.is_virtual = true;
    out.push_back(std::move(one));
  }
  // The order in which they are listed says nothing.
  for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[pick<std::size_t>(0, i - 1)]);
  return out;
}

inline Situation any_situation() {
  Situation out;
  out.now = kStart + kHour * pick(0, 150);
  if (chance(60)) {
    out.space = Space{.free_bytes = pick<std::uint64_t>(0, 100) << 30,
                      .total_bytes = 300ull << 30,
                      .trash_bytes = pick<std::uint64_t>(0, 30) << 30};
  }
  out.first_run = chance(30);
  out.approved = chance(30);
  out.include_damaged = chance(20);
  if (chance(15)) out.drop_series = {0};
  if (chance(20))
    out.births.push_back({.run = "r", .series = 9, .from = pick<std::uint64_t>(0, 30), .began = kStart + kDay});
  return out;
}

}  // namespace ckpt::catalog
