#include "catalog/select.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

namespace ckpt::catalog {
namespace {

/// The candidates of a selector: positions in `members`, best first. The limit is applied afterwards, in one
/// place.
struct Pick {
  std::size_t position;
  std::int64_t value;
};

class Selection {
 public:
  Selection(const Rule& rule, const Policy& policy, std::span<const Checkpoint> checkpoints,
            std::span<const std::uint32_t> members, const std::vector<bool>& kept, Time now)
      : rule_(rule), policy_(policy), checkpoints_(checkpoints), members_(members), kept_(kept), now_(now) {
    out_.resize(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (!rule.where || rule.where->matches(at(i), now)) candidates_.push_back(i);
    }
  }

  std::vector<Verdict> run() {
    propose();
    take();
    return std::move(out_);
  }

 private:
  const Checkpoint& at(std::size_t position) const { return checkpoints_[members_[position]]; }

  void refuse(std::size_t position, Verdict::Kind kind, std::int64_t value = 0, std::uint32_t other = kNobody) {
    out_[position] = {.kind = kind, .value = value, .other = other};
  }

  /// Rules that choose among steps or times see a step once. Those that count saves (last, within, best) see both.
  bool sees_steps_once() const {
    const bool spaced = rule_.kind == Rule::Kind::every_steps && rule_.step_mode == Rule::StepMode::spaced;
    return spaced || rule_.kind == Rule::Kind::first || rule_.kind == Rule::Kind::every || is_calendar(rule_.kind);
  }

  void leave_out_replaced() {
    std::vector<std::size_t> standing;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (const auto other = replaced_by(i))
        refuse(candidates_[i], Verdict::Kind::replaced, 0, *other);
      else
        standing.push_back(candidates_[i]);
    }
    candidates_ = std::move(standing);
  }

  void propose() {
    if (sees_steps_once()) leave_out_replaced();
    switch (rule_.kind) {
      case Rule::Kind::last:
        for (auto i = candidates_.rbegin(); i != candidates_.rend(); ++i) picks_.push_back({*i, 0});
        break;
      case Rule::Kind::first:
        for (const std::size_t i : candidates_) picks_.push_back({i, 0});
        break;
      case Rule::Kind::every_steps:
        if (rule_.step_mode == Rule::StepMode::exact) exact();
        if (rule_.step_mode == Rule::StepMode::spaced) spaced();
        if (rule_.step_mode == Rule::StepMode::closest) closest();
        break;
      case Rule::Kind::every:
        every();
        break;
      case Rule::Kind::hourly:
      case Rule::Kind::daily:
      case Rule::Kind::weekly:
      case Rule::Kind::monthly:
      case Rule::Kind::yearly:
        calendar();
        break;
      case Rule::Kind::within:
        within();
        break;
      case Rule::Kind::best:
        best();
        break;
      case Rule::Kind::steps:
        listed();
        break;
      case Rule::Kind::tags_any:
        tagged();
        break;
    }
  }

  /// Ranks the picks: the first `limit` are kept. Counting exclusively, those that an earlier rule keeps take no rank.
  void take() {
    const std::uint64_t limit = std::min(rule_.count.value_or(UINT64_MAX), rule_.max.value_or(UINT64_MAX));
    std::uint64_t rank = 0;
    for (const Pick& pick : picks_) {
      Verdict& verdict = out_[pick.position];
      verdict.value = pick.value;
      if (policy_.exclusive && kept_[members_[pick.position]]) {
        verdict.kind = Verdict::Kind::passed_over;
        continue;
      }
      verdict.rank = ++rank;
      verdict.kind = rank <= limit ? Verdict::Kind::kept : Verdict::Kind::beyond;
    }
    const bool short_of = !rule_.count || rank < *rule_.count;
    if (!is_calendar(rule_.kind) || !rule_.oldest_if_short || rule_.count == 0u || !short_of || candidates_.empty())
      return;
    const std::size_t oldest = candidates_.front();
    if (out_[oldest].keeps() || (policy_.exclusive && kept_[members_[oldest]])) return;
    out_[oldest] = {.kind = Verdict::Kind::kept_oldest, .rank = rank + 1, .value = bucket(oldest)};
  }

  /// Of several generations of one step in one series the newest represents all.
  std::optional<std::uint32_t> replaced_by(std::size_t index) const {
    if (index + 1 == candidates_.size()) return std::nullopt;
    const Checkpoint& next = at(candidates_[index + 1]);
    const Checkpoint& own = at(candidates_[index]);
    if (next.series != own.series || next.step != own.step) return std::nullopt;
    return members_[candidates_[index + 1]];
  }

  void exact() {
    for (std::size_t i = candidates_.size(); i-- > 0;) {
      const std::uint64_t remainder = at(candidates_[i]).step % rule_.step_interval;
      if (remainder != 0) {
        refuse(candidates_[i], Verdict::Kind::off_step, static_cast<std::int64_t>(remainder));
      } else if (const auto other = replaced_by(i)) {
        refuse(candidates_[i], Verdict::Kind::replaced, 0, *other);
      } else {
        picks_.push_back({candidates_[i], 0});
      }
    }
  }

  void listed() {
    std::vector<std::uint64_t> steps = rule_.steps;
    std::sort(steps.begin(), steps.end());
    for (std::size_t i = candidates_.size(); i-- > 0;) {
      if (!std::binary_search(steps.begin(), steps.end(), at(candidates_[i]).step)) {
        refuse(candidates_[i], Verdict::Kind::unlisted);
      } else if (const auto other = replaced_by(i)) {
        refuse(candidates_[i], Verdict::Kind::replaced, 0, *other);
      } else {
        picks_.push_back({candidates_[i], 0});
      }
    }
  }

  void tagged() {
    for (std::size_t i = candidates_.size(); i-- > 0;) {
      const auto& tags = at(candidates_[i]).tags;
      const bool any = std::find_first_of(tags.begin(), tags.end(), rule_.tags.begin(), rule_.tags.end()) != tags.end();
      if (any) {
        picks_.push_back({candidates_[i], 0});
      } else {
        refuse(candidates_[i], Verdict::Kind::untagged);
      }
    }
  }

  /// Greedy from the oldest. Where steps go down a series begins that supersedes nothing: counting starts again.
  void spaced() {
    std::optional<std::size_t> anchor;
    for (const std::size_t i : candidates_) {
      if (anchor && at(i).step >= at(*anchor).step && at(i).step - at(*anchor).step < rule_.step_interval) {
        refuse(i, Verdict::Kind::too_soon, static_cast<std::int64_t>(at(i).step - at(*anchor).step), members_[*anchor]);
        continue;
      }
      anchor = i;
      picks_.push_back({i, 0});
    }
    std::reverse(picks_.begin(), picks_.end());
  }

  /// The same by time. A clock that went back keeps one more, rather than none until it has caught up.
  void every() {
    std::optional<std::size_t> anchor;
    for (const std::size_t i : candidates_) {
      const Duration since = anchor ? elapsed(at(*anchor).created, at(i).created) : Duration{};
      if (anchor && since >= Duration{} && since < rule_.duration) {
        refuse(i, Verdict::Kind::too_soon, since.count(), members_[*anchor]);
        continue;
      }
      anchor = i;
      picks_.push_back({i, 0});
    }
    std::reverse(picks_.begin(), picks_.end());
  }

  /// A checkpoint is kept if a multiple of the interval is nearer to it than to its neighbours by step. Multiples start
  /// at the last one at or before the first step, so deleting the others changes no answer.
  void closest() {
    std::vector<std::size_t> by_step = candidates_;
    std::stable_sort(by_step.begin(), by_step.end(),
                     [&](std::size_t a, std::size_t b) { return at(a).step < at(b).step; });
    std::vector<bool> chosen(members_.size(), false);
    std::size_t before = by_step.size();  // index of the previous distinct step's last checkpoint
    for (std::size_t i = 0; i < by_step.size(); ++i) {
      const std::uint64_t step = at(by_step[i]).step;
      if (i + 1 < by_step.size() && at(by_step[i + 1]).step == step) continue;  // the later one represents the step
      // The multiples that are nearest to `step` are those from `from` to `to`.
      const std::uint64_t from = before == by_step.size() ? 0 : middle_up(at(by_step[before]).step, step);
      const bool last = i + 1 == by_step.size();
      const std::uint64_t to = last ? step : middle_up(step, at(by_step[i + 1]).step) - 1;
      const std::uint64_t multiple = to / rule_.step_interval * rule_.step_interval;
      chosen[by_step[i]] = multiple >= from;
      before = i;
    }
    if (!candidates_.empty()) chosen[candidates_.back()] = true;
    for (std::size_t i = candidates_.size(); i-- > 0;) {
      if (chosen[candidates_[i]]) {
        picks_.push_back({candidates_[i], 0});
      } else {
        refuse(candidates_[i], Verdict::Kind::off_step,
               static_cast<std::int64_t>(at(candidates_[i]).step % rule_.step_interval));
      }
    }
  }

  /// The smallest integer that is at least as near to b as to a, a < b.
  static std::uint64_t middle_up(std::uint64_t a, std::uint64_t b) { return a + (b - a) / 2 + (b - a) % 2; }

  std::int64_t bucket(std::size_t position) const {
    return bucket_of(period_of(rule_.kind), at(position).created, policy_.zone);
  }

  /// Newest first; buckets already seen are held, so that a clock that jumps to and fro opens none twice.
  void calendar() {
    std::unordered_map<std::int64_t, std::uint32_t> holder;
    for (std::size_t i = candidates_.size(); i-- > 0;) {
      const std::size_t position = candidates_[i];
      const std::int64_t value = bucket(position);
      const auto [found, is_new] = holder.try_emplace(value, members_[position]);
      if (is_new) {
        picks_.push_back({position, value});
      } else {
        refuse(position, Verdict::Kind::held, value, found->second);
      }
    }
  }

  /// Checkpoints that are young enough, and all that are newer in order than the oldest of them: a clock that went back
  /// ages nothing. A time in the future keeps its own checkpoint, but does not affect others.
  void within() {
    std::optional<Time> reference;
    if (rule_.from == Rule::From::now) reference = now_;
    if (rule_.from == Rule::From::newest) {
      for (const std::size_t i : candidates_) {
        if (at(i).created <= now_ && (!reference || *reference < at(i).created)) reference = at(i).created;
      }
    }
    std::vector<Pick> kept;  // with 1 for one that is older, but follows one that is young enough
    bool young = false;
    for (const std::size_t i : candidates_) {
      const Time created = at(i).created;
      const bool future = created > now_ || !reference;  // without a reference all are from the future
      const Duration age = future ? Duration{} : elapsed(created, *reference);
      const bool is_young = future || age < rule_.duration;
      young = young || (is_young && !future);
      if (young || future) {
        kept.push_back({i, is_young ? 0 : 1});
      } else {
        refuse(i, Verdict::Kind::too_old, age.count());
      }
    }
    picks_.insert(picks_.end(), kept.rbegin(), kept.rend());
  }

  /// NaN; and infinitely good, which no training is: else it would be the best forever.
  bool is_diverged(double value) const {
    if (std::isinf(value)) return (value < 0) == (rule_.better == Rule::Better::lower);
    return std::isnan(value);
  }

  /// Where no checkpoint has the metric, the rule cannot tell which are good: it keeps all that it sees.
  void best() {
    struct Measured {
      std::size_t position;
      double value;
    };
    std::vector<Measured> measured;
    std::vector<std::size_t> unmeasured;
    for (std::size_t i = candidates_.size(); i-- > 0;) {
      const double* value = find_metric(at(candidates_[i]), rule_.metric);
      if (value != nullptr && (!is_diverged(*value) || rule_.nan == Rule::Nan::worst))
        measured.push_back({candidates_[i], is_diverged(*value) ? std::nan("") : *value});
      else
        unmeasured.push_back(candidates_[i]);
    }
    const bool keeps = rule_.missing == Rule::Missing::keep || measured.empty();
    for (const std::size_t i : unmeasured)
      refuse(i, keeps ? Verdict::Kind::kept_unmeasured : Verdict::Kind::unmeasured);
    // Stable, and newest first before: of equal values the newer is better.
    const bool lower = rule_.better == Rule::Better::lower;
    std::stable_sort(measured.begin(), measured.end(), [lower](const Measured& a, const Measured& b) {
      if (std::isnan(a.value) || std::isnan(b.value)) return !std::isnan(a.value) && std::isnan(b.value);
      return lower ? a.value < b.value : a.value > b.value;
    });
    for (const Measured& one : measured) picks_.push_back({one.position, 0});
  }

  const Rule& rule_;
  const Policy& policy_;
  std::span<const Checkpoint> checkpoints_;
  std::span<const std::uint32_t> members_;
  const std::vector<bool>& kept_;
  Time now_;
  std::vector<std::size_t> candidates_;  ///< positions that pass the filter, oldest first
  std::vector<Pick> picks_;
  std::vector<Verdict> out_;
};

}  // namespace

std::vector<Verdict> apply(const Rule& rule, const Policy& policy, std::span<const Checkpoint> checkpoints,
                           std::span<const std::uint32_t> members, const std::vector<bool>& kept, Time now) {
  return Selection(rule, policy, checkpoints, members, kept, now).run();
}

}  // namespace ckpt::catalog
