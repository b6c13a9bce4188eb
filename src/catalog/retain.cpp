#include "catalog/retain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "catalog/select.hpp"
#include "catalog/superseded.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::catalog {
namespace {

using Cause = Reason::Cause;

bool is_committed(State state) {
  return state == State::committed || state == State::verified;
}

/// Whether its bytes are its own, so that it can replace others.
bool is_own(const Checkpoint& one) {
  return !one.link && !one.is_virtual && !one.single_file;
}

std::uint64_t bytes_of(const Amount& amount, const Situation& situation) {
  if (!amount.percent) return amount.bytes;
  if (!situation.space) return 0;
  return static_cast<std::uint64_t>(static_cast<double>(situation.space->total_bytes) * *amount.percent / 100);
}

std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? UINT64_MAX : out;
}

/// One group of checkpoints, judged by every rule.
struct Group {
  std::vector<std::uint32_t> members{};  ///< oldest first
  std::vector<std::uint32_t> counted{};  ///< of these: committed, readable, not superseded
  std::uint32_t newest = kNobody;        ///< of the counted ones
  std::uint32_t newest_verified = kNobody;
  std::uint64_t kept = 0;  ///< of the counted ones
};

class Retainer {
 public:
  Retainer(std::span<const Checkpoint> checkpoints, const Policy& policy, const Situation& situation)
      : all_(checkpoints), policy_(policy), situation_(situation), now_(situation.now) {}

  Result<Retention> run() {
    CKPT_CHECK(check());
    out_.decisions.resize(all_.size());
    kept_.resize(all_.size(), false);
    since_ = superseded_since(all_, situation_.births);
    make_groups();
    for (Group& group : groups_) {
      ask_rules(group);
      ask_floor(group);
      ask_guards(group);
    }
    demote();
    for (const Group& group : groups_) decide_group(group);
    relieve();
    total();
    warn_of_tags();
    return std::move(out_);
  }

 private:
  Result<> check() const {
    if (all_.size() >= kNobody) return fail(Errc::usage, "policy: more checkpoints than can be counted");
    if (policy_.keep.size() > kMostRules)
      return fail(Errc::usage, fmt::format("policy: {} rules, more than {}", policy_.keep.size(), kMostRules));
    if (is_empty(policy_)) {
      return fail({.code = Errc::usage,
                   .message = "policy: no rule keeps anything; this would delete everything",
                   .hint = "keep at least one, e.g. last = 3"});
    }
    for (const Rule& rule : policy_.keep) {
      if (rule.kind == Rule::Kind::every_steps && rule.step_interval == 0)
        return fail(Errc::usage, fmt::format("policy: rule '{}': an interval of 0 steps", rule.id));
    }
    for (const std::string& name : policy_.group_by) {
      const bool known = name == "run" || name == "series" ||
                         std::find(kAttributes.begin(), kAttributes.end(), name) != kAttributes.end();
      if (!known) return fail(Errc::usage, fmt::format("policy: group_by: unknown name '{}'", name));
    }
    return {};
  }

  /// The end of another tool's save is not marked: it shows by files that no longer change.
  bool unfinished(std::uint32_t i) const {
    return all_[i].foreign && elapsed(all_[i].created, now_) < policy_.guard.foreign_min_age;
  }
  bool counts(std::uint32_t i) const {
    return is_committed(all_[i].state) && is_own(all_[i]) && !since_[i] && !unfinished(i);
  }
  bool superseded(std::uint32_t i) const { return is_committed(all_[i].state) && is_own(all_[i]) && since_[i]; }

  void make_groups() {
    std::map<std::vector<std::string>, std::size_t> numbers;
    for (std::uint32_t i = 0; i < all_.size(); ++i) {
      std::vector<std::string> key;
      for (const std::string& name : policy_.group_by) key.push_back(attribute_of(all_[i], name));
      const auto [found, is_new] = numbers.try_emplace(std::move(key), groups_.size());
      if (is_new) groups_.emplace_back();
      groups_[found->second].members.push_back(i);
    }
    std::vector<Group> sorted;  // as their keys
    for (const auto& [key, number] : numbers) sorted.push_back(std::move(groups_[number]));
    groups_ = std::move(sorted);
    for (Group& group : groups_) {
      std::sort(group.members.begin(), group.members.end(), [&](std::uint32_t a, std::uint32_t b) {
        if (older(all_[a], all_[b])) return true;
        return !older(all_[b], all_[a]) && a < b;
      });
      for (const std::uint32_t i : group.members) {
        if (counts(i)) group.counted.push_back(i);
      }
      out_.order.insert(out_.order.end(), group.members.rbegin(), group.members.rend());
    }
  }

  void add(std::uint32_t i, Cause cause, std::uint64_t rank = 0, std::int64_t value = 0) {
    out_.decisions[i].reasons.push_back({.cause = cause, .rank = rank, .value = value});
    kept_[i] = true;
  }
  void block(std::uint32_t i, Cause cause, std::int64_t value = 0) {
    out_.decisions[i].blockers.push_back({.cause = cause, .value = value});
  }

  bool is_chosen(std::uint32_t i) const { return !situation_.chosen.empty() && situation_.chosen[i]; }

  void ask_rules(const Group& group) {
    if (!situation_.chosen.empty()) {
      for (const std::uint32_t i : group.members) {
        if (!is_chosen(i)) add(i, Cause::not_chosen);
      }
      return;
    }
    std::vector<std::uint32_t> left_behind;  // superseded: only their tags speak for them
    for (const std::uint32_t i : group.members) {
      if (superseded(i)) left_behind.push_back(i);
    }
    for (std::size_t r = 0; r < policy_.keep.size(); ++r) {
      const Rule& rule = policy_.keep[r];
      judge(r, rule, group.counted);
      if (rule.kind == Rule::Kind::tags_any && !left_behind.empty()) {
        Rule unlimited = rule;
        unlimited.max.reset();
        judge(r, unlimited, left_behind);
      }
      if (rule.kind == Rule::Kind::best && !group.counted.empty() &&
          std::none_of(group.counted.begin(), group.counted.end(),
                       [&](std::uint32_t i) { return find_metric(all_[i], rule.metric) != nullptr; })) {
        out_.warnings.push_back(fmt::format("rule '{}': no checkpoint of {} has the metric '{}': it keeps all of them",
                                            rule.id, all_[group.counted.front()].run, rule.metric));
      }
    }
  }

  void judge(std::size_t r, const Rule& rule, std::span<const std::uint32_t> members) {
    const std::vector<Verdict> verdicts = apply(rule, policy_, all_, members, kept_, now_);
    for (std::size_t m = 0; m < members.size(); ++m) {
      const Verdict& verdict = verdicts[m];
      const Reason reason{.verdict = static_cast<std::uint8_t>(verdict.kind),
                          .rule = static_cast<std::uint16_t>(r),
                          .other = verdict.other,
                          .rank = verdict.rank,
                          .value = verdict.value};
      Decision& decision = out_.decisions[members[m]];
      if (verdict.keeps()) {
        decision.reasons.push_back(reason);
        kept_[members[m]] = true;
      } else if (!kept_[members[m]]) {
        decision.near_misses.push_back(reason);
      }
    }
  }

  void ask_floor(const Group& group) {
    std::map<std::uint64_t, std::uint32_t> last_verified;  // of each series' superseded part
    for (const std::uint32_t i : group.members) {
      const Checkpoint& one = all_[i];
      if (one.state == State::uncommitted) block(i, Cause::uncommitted);
      if (one.link) block(i, Cause::link);
      if (one.single_file) block(i, Cause::single_file);
      if (one.is_virtual) block(i, Cause::is_virtual);
      if (unfinished(i)) block(i, Cause::unfinished, elapsed(one.created, now_).count());
      if (one.state == State::unreadable) block(i, Cause::unreadable);
      if (one.state == State::repairable) block(i, Cause::repairable);
      if (one.marks_unreadable) block(i, Cause::marks_unreadable);
      if (!one.readers.empty()) block(i, Cause::being_read);
      const bool pinned = std::any_of(one.pins.begin(), one.pins.end(),
                                      [&](const Pin& pin) { return !pin.until || now_ < *pin.until; });
      if (pinned) block(i, Cause::pinned);
      if (!one.references.empty()) block(i, Cause::referenced);
      if (!one.trackers.empty()) block(i, Cause::tracked);
      if (one.state == State::corrupt && !situation_.include_damaged) block(i, Cause::corrupt);
      if (is_chosen(i)) continue;
      if (one.undeleted_until && now_ < *one.undeleted_until)
        block(i, Cause::undeleted, elapsed(now_, *one.undeleted_until).count());
      if (!superseded(i)) continue;
      const Duration passed = elapsed(*since_[i], now_);
      // A series that begins in the future has all of its grace left; times come from files, and may be far off.
      const Duration left = policy_.trash.ttl - std::max(passed, Duration{});
      if (passed < policy_.trash.ttl) block(i, Cause::superseded_grace, left.count());
      if (one.state == State::verified) last_verified[one.series] = i;
    }
    for (const auto& [series, i] : last_verified) {
      const auto& dropped = situation_.drop_series;
      if (std::find(dropped.begin(), dropped.end(), series) == dropped.end()) block(i, Cause::last_of_series);
    }
  }

  void ask_guards(Group& group) {
    const Guard& guard = policy_.guard;
    std::vector<std::uint32_t> newest_first = group.counted;
    // Where another tool's have no generation, steps decide, as for RUN@latest, whether these count or not.
    const bool by_step = std::ranges::any_of(group.members, [&](std::uint32_t i) { return all_[i].generation == 0; });
    std::sort(newest_first.begin(), newest_first.end(), [&](std::uint32_t a, std::uint32_t b) {
      return by_step ? older(all_[b], all_[a]) : committed_before(all_[b], all_[a]);
    });
    std::uint64_t verified = 0;
    for (std::size_t n = 0; n < newest_first.size(); ++n) {
      const std::uint32_t i = newest_first[n];
      if (n == 0) group.newest = i;
      if (n < guard.newest) add(i, Cause::newest, n + 1);
      if (all_[i].state != State::verified) continue;
      if (++verified == 1) group.newest_verified = i;
      if (verified <= guard.newest_verified) add(i, Cause::newest_verified, verified);
    }
    if (group.counted.empty()) keep_left_behind(group);
    const std::uint32_t least = group.newest_verified != kNobody ? group.newest_verified : group.newest;
    if (least != kNobody && guard.newest_verified == 0 && group.newest_verified == least)
      block(least, Cause::floor_newest);
    if (least != kNobody && guard.newest == 0 && group.newest_verified == kNobody) block(least, Cause::floor_newest);

    for (const std::uint32_t i : group.members) {
      const Checkpoint& one = all_[i];
      if (!is_committed(one.state) && one.state != State::corrupt) continue;
      if (one.resume_source && guard.resume_source) add(i, Cause::resume_source);
      if (guard.min_age > Duration{} && elapsed(one.created, now_) < guard.min_age) add(i, Cause::min_age);
    }
    for (const std::uint32_t i : group.counted) {
      if (stays(i)) ++group.kept;
    }
    for (auto i = group.counted.rbegin(); i != group.counted.rend() && group.kept < guard.min_keep; ++i) {
      if (stays(*i)) continue;
      add(*i, Cause::min_keep, ++group.kept);
    }
    if (!guard.require_verified_successor) return;
    for (const std::uint32_t i : group.members) {
      const bool may_go = has_successor(group, i) || stays(i);
      if (may_go) continue;
      add(i, Cause::no_verified_successor);
      if (counts(i)) ++group.kept;
    }
  }

  /// Nothing that counts is left (later checkpoints are corrupt, or gone). The newest superseded one is all that can be
  /// resumed from; if there is none either, the newest corrupt one, of which parts may be whole.
  void keep_left_behind(const Group& group) {
    std::uint32_t newest = kNobody;
    const auto rank = [&](std::uint32_t i) {
      return all_[i].state == State::corrupt ? 0 : all_[i].state == State::verified ? 2 : 1;
    };
    for (const std::uint32_t i : group.members) {
      const bool candidate = superseded(i) || (all_[i].state == State::corrupt && is_own(all_[i]));
      if (!candidate) continue;
      const bool better = newest == kNobody || rank(i) > rank(newest) ||
                          (rank(i) == rank(newest) && committed_before(all_[newest], all_[i]));
      if (better) newest = i;
    }
    if (newest != kNobody) block(newest, Cause::floor_newest);
  }

  bool stays(std::uint32_t i) const { return kept_[i] || !out_.decisions[i].blockers.empty(); }
  bool has_successor(const Group& group, std::uint32_t i) const {
    return group.newest_verified != kNobody && older(all_[i], all_[group.newest_verified]);
  }
  /// Nothing but rules keeps it.
  bool by_rules_only(std::uint32_t i) const {
    const Decision& decision = out_.decisions[i];
    return kept_[i] && decision.blockers.empty() &&
           std::all_of(decision.reasons.begin(), decision.reasons.end(),
                       [](const Reason& r) { return r.cause == Cause::rule || r.cause == Cause::old_optimizer; });
  }

  void demote() {
    if (!policy_.drop_optimizer_after) return;
    for (std::uint32_t i = 0; i < all_.size(); ++i) {
      const Duration age = elapsed(all_[i].created, now_);
      if (!by_rules_only(i) || all_[i].optimizer_bytes == 0 || age < *policy_.drop_optimizer_after) continue;
      Decision& decision = out_.decisions[i];
      decision.action = Action::demote;
      decision.bytes_freed = std::min(all_[i].optimizer_bytes, all_[i].bytes);
      decision.reasons.push_back({.cause = Cause::old_optimizer, .value = age.count()});
    }
  }

  void decide_group(const Group& group) {
    for (const std::uint32_t i : group.members) {
      Decision& decision = out_.decisions[i];
      const bool by_rule = std::any_of(decision.reasons.begin(), decision.reasons.end(),
                                       [](const Reason& reason) { return reason.cause == Cause::rule; });
      if (by_rule) decision.near_misses.clear();
      decision.superseded = superseded(i);
      if (all_[i].state == State::uncommitted || all_[i].link || all_[i].single_file) {
        decision.action = Action::skip;
      } else if (all_[i].state == State::corrupt && !situation_.include_damaged) {
        decision.action = Action::block;
      } else if (stays(i)) {
        const bool is_known = all_[i].state != State::unreadable && all_[i].state != State::repairable;
        decision.would_be_trash = !by_rule && (situation_.chosen.empty() || is_chosen(i)) && is_known &&
                                  !unfinished(i) && !all_[i].is_virtual;
      } else {
        decision.action = Action::trash;
        decision.bytes_freed = all_[i].bytes;
        if (is_chosen(i)) decision.reasons.push_back({.cause = Cause::chosen});
        if (superseded(i) && !is_chosen(i)) decision.reasons.push_back({.cause = Cause::superseded});
        if (all_[i].state == State::corrupt) decision.reasons.push_back({.cause = Cause::corrupt_goes});
      }
    }
  }

  struct Relaxable {
    std::size_t level;  ///< how many rules of relax_order must be broken
    Time reached;       ///< the greatest time of its group up to it: a clock decides between groups, never within one
    std::size_t group;
    std::size_t position;
    std::uint32_t index;
  };

  std::vector<Relaxable> relaxable() const {
    std::vector<std::size_t> level(policy_.keep.size(), SIZE_MAX);
    const std::vector<std::size_t> relaxed = relax_order(policy_);
    for (std::size_t n = 0; n < relaxed.size(); ++n) level[relaxed[n]] = n;
    std::vector<Relaxable> out;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      Time reached = Time::min();
      for (std::size_t p = 0; p < groups_[g].counted.size(); ++p) {
        const std::uint32_t i = groups_[g].counted[p];
        reached = std::max(reached, all_[i].created);
        if (!by_rules_only(i) || (policy_.guard.require_verified_successor && !has_successor(groups_[g], i))) continue;
        std::size_t deepest = 0;
        for (const Reason& reason : out_.decisions[i].reasons) {
          if (reason.cause == Cause::rule) deepest = std::max(deepest, level[reason.rule]);
        }
        if (deepest != SIZE_MAX) out.push_back({deepest, reached, g, p, i});
      }
    }
    std::sort(out.begin(), out.end(), [](const Relaxable& a, const Relaxable& b) {
      return std::tie(a.level, a.reached, a.group, a.position) < std::tie(b.level, b.reached, b.group, b.position);
    });
    return out;
  }

  /// How many bytes must still go.
  std::uint64_t shortage() {
    const Pressure& pressure = policy_.pressure;
    std::uint64_t used = 0;
    std::uint64_t going = 0;
    std::uint64_t last_size = 0;
    for (std::uint32_t i = 0; i < all_.size(); ++i) {
      used = saturating_add(used, all_[i].bytes - std::min(all_[i].bytes, out_.decisions[i].bytes_freed));
      going = saturating_add(going, out_.decisions[i].bytes_freed);
    }
    for (const Group& group : groups_) {
      if (group.newest != kNobody) last_size = std::max(last_size, all_[group.newest].bytes);
    }
    std::uint64_t missing = 0;
    if (pressure.max_size && (situation_.space || !pressure.max_size->percent)) {
      const std::uint64_t limit = bytes_of(*pressure.max_size, situation_);
      missing = used > limit ? used - limit : 0;
    }
    const bool wants_free = pressure.min_free || pressure.headroom;
    if (!situation_.space && (wants_free || (pressure.max_size && pressure.max_size->percent)))
      out_.warnings.push_back("pressure: the space of the volume is unknown; its limits are not applied");
    if (!situation_.space || !wants_free) return missing;
    std::uint64_t wanted = pressure.min_free ? bytes_of(*pressure.min_free, situation_) : 0;
    if (pressure.headroom) {
      const double bytes = *pressure.headroom * static_cast<double>(last_size);
      wanted = std::max(wanted, bytes < 1e19 ? static_cast<std::uint64_t>(bytes) : UINT64_MAX);
    }
    out_.wanted_free = wanted;
    const std::uint64_t free =
        saturating_add(saturating_add(situation_.space->free_bytes, situation_.space->trash_bytes), going);
    return std::max(missing, wanted > free ? wanted - free : 0);
  }

  void relieve() {
    std::uint64_t missing = shortage();
    if (missing == 0) return;
    for (const Relaxable& one : relaxable()) {
      if (missing == 0) return;
      Group& group = groups_[one.group];
      if (group.kept <= std::max<std::uint64_t>(policy_.guard.min_keep, 1)) continue;
      --group.kept;
      Decision& decision = out_.decisions[one.index];
      const std::uint64_t gained = all_[one.index].bytes - decision.bytes_freed;
      missing -= std::min(missing, gained);
      decision.action = Action::trash;
      decision.bytes_freed = all_[one.index].bytes;
      std::erase_if(decision.reasons, [](const Reason& reason) { return reason.cause != Cause::rule; });
      for (Reason& reason : decision.reasons) reason.cause = Cause::relaxed;
    }
    if (missing != 0) {
      out_.warnings.push_back(
          fmt::format("pressure: still {} over the limit; everything left is protected", size_text(missing)));
    }
  }

  void total() {
    std::uint64_t committed = 0;
    for (std::uint32_t i = 0; i < all_.size(); ++i) {
      const Decision& decision = out_.decisions[i];
      out_.trash_count += decision.action == Action::trash ? 1 : 0;
      out_.demote_count += decision.action == Action::demote ? 1 : 0;
      out_.freed_bytes = saturating_add(out_.freed_bytes, decision.bytes_freed);
      out_.kept_bytes = saturating_add(out_.kept_bytes, all_[i].bytes - std::min(all_[i].bytes, decision.bytes_freed));
      const bool is_known = all_[i].state != State::unreadable && all_[i].state != State::repairable && !unfinished(i);
      const bool judged =
          decision.action != Action::skip && decision.action != Action::block && is_known && !all_[i].is_virtual;
      committed += judged ? 1 : 0;
    }
    const double lost = static_cast<double>(out_.trash_count + out_.demote_count);
    const double most = policy_.guard.max_delete_fraction * static_cast<double>(committed);
    if (!situation_.first_run || situation_.approved || lost <= most) return;
    out_.aborted = fmt::format(
        "this policy is new or changed and would delete {} of {} checkpoints{} (limit {}%)", out_.trash_count,
        committed, out_.demote_count == 0 ? "" : fmt::format(" and drop the optimizer of {}", out_.demote_count),
        policy_.guard.max_delete_fraction * 100);
  }

  /// A tag that no checkpoint has protects none: perhaps it is mistyped.
  void warn_of_tags() {
    if (out_.trash_count + out_.demote_count == 0) return;
    for (const Rule& rule : policy_.keep) {
      for (const std::string& tag : rule.tags) {
        const auto has_it = [&](const Checkpoint& one) { return std::ranges::count(one.tags, tag) != 0; };
        if (std::ranges::none_of(all_, has_it))
          out_.warnings.push_back(fmt::format("rule '{}': no checkpoint has the tag '{}'", rule.id, tag));
      }
    }
  }

  std::span<const Checkpoint> all_;
  const Policy& policy_;
  const Situation& situation_;
  Time now_;
  std::vector<std::optional<Time>> since_;  ///< superseded
  std::vector<bool> kept_;                  ///< by a rule or a guard
  std::vector<Group> groups_;
  Retention out_;
};

}  // namespace

bool is_kept_unmeasured(const Decision& decision) {
  return decision.blockers.empty() && !decision.reasons.empty() &&
         std::all_of(decision.reasons.begin(), decision.reasons.end(), [](const Reason& reason) {
           return reason.cause == Reason::Cause::rule &&
                  static_cast<Verdict::Kind>(reason.verdict) == Verdict::Kind::kept_unmeasured;
         });
}

Result<Retention> retain(std::span<const Checkpoint> checkpoints, const Policy& policy, const Situation& situation) {
  return Retainer(checkpoints, policy, situation).run();
}

}  // namespace ckpt::catalog
