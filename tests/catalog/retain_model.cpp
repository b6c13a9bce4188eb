#include "catalog/retain_model.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace ckpt::catalog::model {
namespace {

using List = std::vector<const Checkpoint*>;
using Kind = Rule::Kind;

class Model {
 public:
  Model(const std::vector<Checkpoint>& all, const Policy& policy, const Situation& situation)
      : all_(all), policy_(policy), situation_(situation), now_(situation.now) {}

  Answer run() {
    for (const Checkpoint& one : all_) {
      bool placed = false;
      for (List& group : groups_) {
        if (same_group(*group.front(), one)) {
          group.push_back(&one);
          placed = true;
          break;
        }
      }
      if (!placed) groups_.push_back({&one});
    }
    std::sort(groups_.begin(), groups_.end(), [&](const List& a, const List& b) { return key(*a[0]) < key(*b[0]); });
    for (List& group : groups_) std::sort(group.begin(), group.end(), [](auto* a, auto* b) { return older(*a, *b); });
    for (const List& group : groups_) {
      rules(group);
      guards(group);
    }
    for (const Checkpoint& one : all_) decide(one);
    press();
    stop();
    return answer_;
  }

 private:
  std::vector<std::string> key(const Checkpoint& one) const {
    std::vector<std::string> out;
    for (const std::string& name : policy_.group_by) out.push_back(attribute_of(one, name));
    return out;
  }
  bool same_group(const Checkpoint& a, const Checkpoint& b) const { return key(a) == key(b); }
  static bool whole(const Checkpoint& one) {
    return !one.link && !one.is_virtual && (one.state == State::committed || one.state == State::verified);
  }

  std::optional<std::uint64_t> from_of(const std::string& run, std::uint64_t series) const {
    std::optional<std::uint64_t> out;
    for (const Checkpoint& one : all_) {
      if (one.run == run && one.series == series && one.series_from) out = std::max(out.value_or(0), *one.series_from);
    }
    for (const SeriesBirth& birth : situation_.births) {
      if (birth.run == run && birth.series == series && birth.from) out = std::max(out.value_or(0), *birth.from);
    }
    return out;
  }
  Time began(const std::string& run, std::uint64_t series) const {
    for (const SeriesBirth& birth : situation_.births) {
      if (birth.run == run && birth.series == series) return birth.began;
    }
    Time out = Time::max();
    for (const Checkpoint& one : all_) {
      if (one.run == run && one.series == series) out = std::min(out, std::max(one.created, one.committed));
    }
    return out;
  }
  std::optional<std::uint64_t> after_of(const std::string& run, std::uint64_t series) const {
    for (const Checkpoint& one : all_) {
      if (one.run == run && one.series == series && one.series_after) return one.series_after;
    }
    for (const SeriesBirth& birth : situation_.births) {
      if (birth.run == run && birth.series == series && birth.after) return birth.after;
    }
    return std::nullopt;
  }
  /// The later series that has left this one behind: it continues an earlier one, and was not left behind itself.
  std::optional<std::uint64_t> left_by(const std::string& run, std::uint64_t series) const {
    for (std::uint64_t later = series + 1; later < 60; ++later) {
      const auto after = after_of(run, later);
      if (after && *after < series && from_of(run, later) && !left_by(run, later)) return later;
    }
    return std::nullopt;
  }
  /// The later series that left its series behind, or the first that began before this step.
  std::optional<Time> superseded(const Checkpoint& one) const {
    if (const auto later = left_by(one.run, one.series)) return began(one.run, *later);
    for (std::uint64_t series = one.series + 1; series < 60; ++series) {
      const auto from = from_of(one.run, series);
      if (from && one.step > *from && !left_by(one.run, series)) return began(one.run, series);
    }
    return std::nullopt;
  }
  bool unfinished(const Checkpoint& one) const {
    return one.foreign && now_ - one.created < policy_.guard.foreign_min_age;
  }
  bool counts(const Checkpoint& one) const { return whole(one) && !superseded(one) && !unfinished(one); }

  bool kept(const Checkpoint& one) const { return answer_.rules.contains(one.id) || guarded_.contains(one.id); }

  void rules(const List& group) {
    for (const Rule& rule : policy_.keep) {
      List seen;
      for (const Checkpoint* one : group) {
        if (counts(*one) && (!rule.where || rule.where->matches(*one, now_))) seen.push_back(one);
      }
      if (sees_steps_once(rule)) {
        List once;
        for (const Checkpoint* one : seen) {
          if (!saved_again(*one, seen)) once.push_back(one);
        }
        seen = once;
      }
      List chosen;
      List wanted = wish(rule, seen);
      const std::uint64_t limit = std::min(rule.count.value_or(UINT64_MAX), rule.max.value_or(UINT64_MAX));
      for (const Checkpoint* one : wanted) {
        if (policy_.exclusive && kept(*one)) continue;
        if (chosen.size() < limit) chosen.push_back(one);
      }
      std::uint64_t possible = 0;
      for (const Checkpoint* one : wanted) possible += policy_.exclusive && kept(*one) ? 0u : 1u;
      const bool calendar = rule.kind >= Kind::hourly && rule.kind <= Kind::yearly;
      if (calendar && rule.oldest_if_short && rule.count != 0u && !seen.empty() &&
          (!rule.count || possible < *rule.count) && !(policy_.exclusive && kept(*seen[0])))
        chosen.push_back(seen[0]);
      if (rule.kind == Kind::best && (rule.missing == Rule::Missing::keep || wanted.empty())) {
        for (const Checkpoint* one : seen) {
          if (!measured(rule, *one)) chosen.push_back(one);
        }
      }
      if (rule.kind == Kind::tags_any) {
        for (const Checkpoint* one : group) {
          if (whole(*one) && superseded(*one) && has_tag(rule, *one) &&
              (!rule.where || rule.where->matches(*one, now_)) && !(policy_.exclusive && kept(*one)))
            chosen.push_back(one);
        }
      }
      for (const Checkpoint* one : chosen) answer_.rules[one->id].insert(rule.id);
    }
  }

  static bool sees_steps_once(const Rule& rule) {
    if (rule.kind == Kind::every_steps) return rule.step_mode == Rule::StepMode::spaced;
    return rule.kind == Kind::first || rule.kind == Kind::every ||
           (rule.kind >= Kind::hourly && rule.kind <= Kind::yearly);
  }
  static bool saved_again(const Checkpoint& one, const List& seen) {
    for (const Checkpoint* other : seen) {
      if (other->series == one.series && other->step == one.step && older(one, *other)) return true;
    }
    return false;
  }

  static bool has_tag(const Rule& rule, const Checkpoint& one) {
    for (const std::string& tag : rule.tags) {
      if (std::count(one.tags.begin(), one.tags.end(), tag) != 0) return true;
    }
    return false;
  }
  static bool diverged(const Rule& rule, double value) {
    return std::isnan(value) || value == (rule.better == Rule::Better::lower ? -HUGE_VAL : HUGE_VAL);
  }
  static const double* measured(const Rule& rule, const Checkpoint& one) {
    const double* value = find_metric(one, rule.metric);
    return value != nullptr && diverged(rule, *value) && rule.nan == Rule::Nan::missing ? nullptr : value;
  }
  /// a is strictly better than b by value.
  static bool beats(const Rule& rule, double a, double b) {
    if (diverged(rule, a)) return false;
    if (diverged(rule, b)) return true;
    return rule.better == Rule::Better::lower ? a < b : b < a;
  }

  /// What a rule would keep without a limit, the most wanted first. `seen` is oldest first.
  List wish(const Rule& rule, const List& seen) const {
    List newest_first(seen.rbegin(), seen.rend());
    List out;
    const auto keep_if = [&](const std::function<bool(const Checkpoint&)>& yes) {
      for (const Checkpoint* one : newest_first) {
        if (yes(*one)) out.push_back(one);
      }
    };
    const auto newer_generation = [&](const Checkpoint& one) { return saved_again(one, seen); };
    switch (rule.kind) {
      case Kind::last:
        return newest_first;
      case Kind::first:
        return seen;
      case Kind::steps:
        keep_if([&](const Checkpoint& one) {
          return std::count(rule.steps.begin(), rule.steps.end(), one.step) != 0 && !newer_generation(one);
        });
        return out;
      case Kind::tags_any:
        keep_if([&](const Checkpoint& one) { return has_tag(rule, one); });
        return out;
      case Kind::within:
        return within(rule, seen);
      case Kind::best: {
        // Rank = how many are better, or as good and newer.
        List left;
        for (const Checkpoint* one : seen) {
          if (measured(rule, *one)) left.push_back(one);
        }
        while (!left.empty()) {
          const Checkpoint* first = left.front();
          for (const Checkpoint* one : left) {
            if (!beats(rule, *measured(rule, *first), *measured(rule, *one))) first = one;  // as good, and newer: later
          }
          out.push_back(first);
          std::erase(left, first);
        }
        return out;
      }
      case Kind::every_steps:
        if (rule.step_mode == Rule::StepMode::exact) {
          keep_if([&](const Checkpoint& one) { return one.step % rule.step_interval == 0 && !newer_generation(one); });
          return out;
        }
        if (rule.step_mode == Rule::StepMode::closest) return closest(rule, seen);
        for (const Checkpoint* one : seen) {
          if (out.empty() || one->step < out.back()->step || one->step >= out.back()->step + rule.step_interval)
            out.push_back(one);
        }
        return {out.rbegin(), out.rend()};
      case Kind::every:
        for (const Checkpoint* one : seen) {
          if (out.empty() || one->created < out.back()->created || one->created >= out.back()->created + rule.duration)
            out.push_back(one);
        }
        return {out.rbegin(), out.rend()};
      default: {
        const auto period = static_cast<Period>(static_cast<int>(rule.kind) - static_cast<int>(Kind::hourly));
        keep_if([&](const Checkpoint& one) {
          for (const Checkpoint* other : seen) {
            if (older(one, *other) &&
                bucket_of(period, one.created, policy_.zone) == bucket_of(period, other->created, policy_.zone))
              return false;
          }
          return true;
        });
        return out;
      }
    }
  }

  List within(const Rule& rule, const List& seen) const {
    std::optional<Time> reference;
    if (rule.from == Rule::From::now) reference = now_;
    for (const Checkpoint* one : seen) {
      if (rule.from == Rule::From::newest && one->created <= now_)
        reference = std::max(reference.value_or(one->created), one->created);
    }
    List out;
    for (const Checkpoint* one : seen) {
      bool keep = one->created > now_ || !reference;
      for (const Checkpoint* before : seen) {
        const bool young = reference && before->created <= now_ && before->created > *reference - rule.duration;
        if (young && !older(*one, *before)) keep = true;
      }
      if (keep) out.push_back(one);
    }
    return {out.rbegin(), out.rend()};
  }

  /// For each multiple, one after the other, the nearest.
  static List closest(const Rule& rule, const List& seen) {
    if (seen.empty()) return {};
    std::set<const Checkpoint*> chosen{seen.back()};
    std::uint64_t least = UINT64_MAX;
    std::uint64_t most = 0;
    for (const Checkpoint* one : seen) {
      least = std::min(least, one->step);
      most = std::max(most, one->step);
    }
    for (std::uint64_t m = least / rule.step_interval * rule.step_interval; m <= most; m += rule.step_interval) {
      const Checkpoint* best = nullptr;
      const auto far = [m](const Checkpoint& one) { return one.step > m ? one.step - m : m - one.step; };
      for (const Checkpoint* one : seen) {
        if (best == nullptr || far(*one) < far(*best) ||
            (far(*one) == far(*best) && (one->step > best->step || (one->step == best->step && older(*best, *one)))))
          best = one;
      }
      chosen.insert(best);
    }
    List out;
    for (auto one = seen.rbegin(); one != seen.rend(); ++one) {
      if (chosen.contains(*one)) out.push_back(*one);
    }
    return out;
  }

  /// Another tool's checkpoint has no generation: beside one steps decide.
  static bool saved_before(const Checkpoint& a, const Checkpoint& b, const List& among) {
    for (const Checkpoint* one : among)
      if (one->generation == 0) return older(a, b);
    return committed_before(a, b);
  }

  void guards(const List& group) {
    List counted;
    for (const Checkpoint* one : group) {
      if (counts(*one)) counted.push_back(one);
    }
    const auto later = [&](const Checkpoint& one, bool only_verified) {  // how many were committed after it
      std::uint64_t n = 0;
      for (const Checkpoint* other : counted)
        n += (!only_verified || other->state == State::verified) && saved_before(one, *other, group) ? 1u : 0u;
      return n;
    };
    const Guard& guard = policy_.guard;
    const Checkpoint* verified = nullptr;
    const Checkpoint* newest = nullptr;
    for (const Checkpoint* one : counted) {
      if (later(*one, false) < guard.newest) guarded_.insert(one->id);
      if (later(*one, false) == 0) newest = one;
      if (one->state != State::verified) continue;
      if (later(*one, true) < guard.newest_verified) guarded_.insert(one->id);
      if (later(*one, true) == 0) verified = one;
    }
    if (verified != nullptr) answer_.floor.insert(verified->id);
    if (verified == nullptr && newest != nullptr) answer_.floor.insert(newest->id);
    if (counted.empty()) {
      const Checkpoint* left = nullptr;
      for (const State state : {State::corrupt, State::committed, State::verified}) {
        const Checkpoint* best = nullptr;
        for (const Checkpoint* one : group) {
          const bool left_behind =
              state == State::corrupt ? !one->link && !one->is_virtual : whole(*one) && superseded(*one);
          if (left_behind && one->state == state && (best == nullptr || committed_before(*best, *one))) best = one;
        }
        if (best != nullptr) left = best;
      }
      if (left != nullptr) answer_.floor.insert(left->id);
    }
    for (const Checkpoint* one : group) floor(*one, group);
    for (const Checkpoint* one : group) {
      if (!whole(*one) && !(one->state == State::corrupt)) continue;
      if (guard.resume_source && one->resume_source) guarded_.insert(one->id);
      if (guard.min_age > Duration{} && now_ - one->created < guard.min_age) guarded_.insert(one->id);
    }
    std::uint64_t staying = 0;
    for (const Checkpoint* one : counted) staying += stays(*one) ? 1u : 0u;
    for (auto one = counted.rbegin(); one != counted.rend(); ++one) {
      if (stays(**one) || staying >= guard.min_keep) continue;
      guarded_.insert((*one)->id);
      ++staying;
    }
    for (const Checkpoint* one : group) {
      const bool replaced = verified != nullptr && older(*one, *verified);
      replaced_[one->id] = replaced;
      if (guard.require_verified_successor && !replaced && !stays(*one)) guarded_.insert(one->id);
    }
  }
  bool stays(const Checkpoint& one) const { return kept(one) || answer_.floor.contains(one.id); }

  void floor(const Checkpoint& one, const List& group) {
    bool held = one.state == State::uncommitted || one.state == State::unreadable || one.state == State::repairable ||
                unfinished(one) || one.link || one.is_virtual || one.marks_unreadable || !one.readers.empty() ||
                !one.references.empty() || !one.trackers.empty() ||
                (one.state == State::corrupt && !situation_.include_damaged);
    for (const Pin& pin : one.pins) held = held || !pin.until || now_ < *pin.until;
    const auto since = whole(one) ? superseded(one) : std::nullopt;
    if (since) {
      held = held || now_ - *since < policy_.trash.ttl;
      bool last = one.state == State::verified;
      for (const Checkpoint* other : group) {
        if (other->series == one.series && other->state == State::verified && whole(*other) && superseded(*other) &&
            older(one, *other))
          last = false;
      }
      const auto& drop = situation_.drop_series;
      held = held || (last && std::count(drop.begin(), drop.end(), one.series) == 0);
    }
    if (held) answer_.floor.insert(one.id);
  }

  void decide(const Checkpoint& one) {
    Action& action = answer_.actions[one.id];
    if (one.state == State::uncommitted || one.link) {
      action = Action::skip;
    } else if (one.state == State::corrupt && !situation_.include_damaged) {
      action = Action::block;
    } else if (stays(one)) {
      const bool rules_only =
          answer_.rules.contains(one.id) && !guarded_.contains(one.id) && !answer_.floor.contains(one.id);
      const bool old = policy_.drop_optimizer_after && now_ - one.created >= *policy_.drop_optimizer_after;
      action = rules_only && old && one.optimizer_bytes != 0 ? Action::demote : Action::keep;
    } else {
      action = Action::trash;
    }
  }

  std::uint64_t left(const Checkpoint& one) const {
    const Action action = answer_.actions.at(one.id);
    if (action == Action::trash) return 0;
    return one.bytes - (action == Action::demote ? one.optimizer_bytes : 0);
  }
  bool too_much() const {
    std::uint64_t used = 0;
    std::uint64_t was = 0;
    std::uint64_t last = 0;
    for (const Checkpoint& one : all_) {
      used += left(one);
      was += one.bytes;
    }
    for (const List& group : groups_) {
      const Checkpoint* newest = nullptr;
      List counted;
      for (const Checkpoint* one : group)
        if (counts(*one)) counted.push_back(one);
      for (const Checkpoint* one : counted)
        if (newest == nullptr || saved_before(*newest, *one, counted)) newest = one;
      if (newest != nullptr) last = std::max(last, newest->bytes);
    }
    const Pressure& pressure = policy_.pressure;
    const auto& space = situation_.space;
    const auto amount = [&](const Amount& a) {
      return a.percent ? static_cast<std::uint64_t>(static_cast<double>(space->total_bytes) * *a.percent / 100)
                       : a.bytes;
    };
    if (pressure.max_size && (space || !pressure.max_size->percent) && used > amount(*pressure.max_size)) return true;
    if (!space) return false;
    const std::uint64_t free = space->free_bytes + space->trash_bytes + (was - used);
    if (pressure.min_free && free < amount(*pressure.min_free)) return true;
    return pressure.headroom && free < static_cast<std::uint64_t>(*pressure.headroom * static_cast<double>(last));
  }

  /// One rule after the other is given up; of what only such rules keep, the oldest goes first.
  void press() {
    std::set<std::string> broken;
    for (const std::size_t index : relax_order(policy_)) {
      broken.insert(policy_.keep[index].id);
      while (too_much()) {
        const Checkpoint* next = nullptr;
        Time next_time{};
        for (std::size_t g = 0; g < groups_.size(); ++g) {
          std::uint64_t staying = 0;
          for (const Checkpoint* one : groups_[g])
            staying += counts(*one) && answer_.actions.at(one->id) != Action::trash ? 1u : 0u;
          if (staying <= std::max<std::uint64_t>(1, policy_.guard.min_keep)) continue;
          Time reached = Time::min();
          for (const Checkpoint* one : groups_[g]) {
            if (!counts(*one)) continue;
            reached = std::max(reached, one->created);
            if (!may_break(*one, broken)) continue;
            if (next == nullptr || reached < next_time) {
              next = one;
              next_time = reached;
            }
            break;  // within a group the oldest
          }
        }
        if (next == nullptr) break;
        answer_.actions[next->id] = Action::trash;
      }
    }
  }
  bool may_break(const Checkpoint& one, const std::set<std::string>& broken) const {
    const Action action = answer_.actions.at(one.id);
    if (action != Action::keep && action != Action::demote) return false;
    if (guarded_.contains(one.id) || answer_.floor.contains(one.id) || !answer_.rules.contains(one.id)) return false;
    if (policy_.guard.require_verified_successor && !replaced_.at(one.id)) return false;
    for (const std::string& rule : answer_.rules.at(one.id)) {
      if (!broken.contains(rule)) return false;
    }
    return true;
  }

  void stop() {
    double lost = 0;
    double judged = 0;
    for (const Checkpoint& one : all_) {
      const Action action = answer_.actions.at(one.id);
      lost += action == Action::trash || action == Action::demote ? 1u : 0u;
      const bool known =
          one.state != State::unreadable && one.state != State::repairable && !unfinished(one) && !one.is_virtual;
      judged += action != Action::skip && action != Action::block && known ? 1u : 0u;
    }
    answer_.aborted = situation_.first_run && !situation_.approved && lost > policy_.guard.max_delete_fraction * judged;
  }

  const std::vector<Checkpoint>& all_;
  const Policy& policy_;
  const Situation& situation_;
  Time now_;
  std::vector<List> groups_;
  std::set<std::string> guarded_;
  std::map<std::string, bool> replaced_;
  Answer answer_;
};

}  // namespace

Answer retain(const std::vector<Checkpoint>& all, const Policy& policy, const Situation& situation) {
  return Model(all, policy, situation).run();
}

}  // namespace ckpt::catalog::model
