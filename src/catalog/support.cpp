#include "catalog/support.hpp"

#include <algorithm>

namespace ckpt::catalog {
namespace {

/// Whether a rule keeps a checkpoint independently of all others.
bool stands_alone(const Rule& rule) {
  if (rule.max) return false;
  switch (rule.kind) {
    case Rule::Kind::every_steps:
      return rule.step_mode == Rule::StepMode::exact;
    case Rule::Kind::steps:
    case Rule::Kind::tags_any:
    case Rule::Kind::within:
      return true;
    default:
      return false;
  }
}

bool goes(const Decision& decision) {
  return decision.action == Action::trash || decision.action == Action::demote;
}

/// Decides again, treating checkpoints that `counts` refuses as unreadable, and adds the decisions for `action` that
/// differ then.
Result<> compare(std::span<Checkpoint> checkpoints, const Policy& policy, const Situation& situation,
                 const Retention& retention, Action action, const std::vector<bool>& counts,
                 std::vector<std::uint32_t>& out) {
  std::vector<State> states(checkpoints.size());
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    State& state = checkpoints[i].state;
    states[i] = state;
    if (!counts[i] && is_whole(checkpoints[i])) state = State::unreadable;
  }
  const auto again = retain(checkpoints, policy, situation);
  for (std::size_t i = 0; i < checkpoints.size(); ++i) checkpoints[i].state = states[i];
  if (!again) return fail(again.error());
  for (std::uint32_t i = 0; i < checkpoints.size(); ++i) {
    if (retention.decisions[i].action != action) continue;
    const Action now = again->decisions[i].action;
    const bool same = now == action || (action == Action::demote && now == Action::trash);
    if (!same) out.push_back(i);
  }
  return {};
}

}  // namespace

bool is_whole(const Checkpoint& checkpoint) {
  const bool is_committed = checkpoint.state == State::committed || checkpoint.state == State::verified;
  return is_committed && !checkpoint.is_virtual;
}

std::vector<std::uint32_t> likely_support(std::span<const Checkpoint> checkpoints, const Policy& policy,
                                          const Retention& retention) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < checkpoints.size(); ++i) {
    const Decision& decision = retention.decisions[i];
    if (decision.action == Action::trash || !is_whole(checkpoints[i])) continue;
    const bool counted = std::any_of(decision.reasons.begin(), decision.reasons.end(), [&](const Reason& reason) {
      if (reason.cause == Reason::Cause::old_optimizer || reason.cause == Reason::Cause::not_chosen) return false;
      return reason.cause != Reason::Cause::rule || !stands_alone(policy.keep[reason.rule]);
    });
    const bool floor = std::any_of(decision.blockers.begin(), decision.blockers.end(), [](const Reason& reason) {
      return reason.cause == Reason::Cause::floor_newest || reason.cause == Reason::Cause::last_of_series;
    });
    if (counted || floor) out.push_back(i);
  }
  return out;
}

Result<std::vector<std::uint32_t>> unsupported(std::span<Checkpoint> checkpoints, const Policy& policy,
                                               const Situation& situation, const Retention& retention,
                                               const std::vector<bool>& sure) {
  Situation asked = situation;
  asked.approved = true;  // how much goes was judged already
  std::vector<std::uint32_t> out;
  std::vector<bool> counts(checkpoints.size());
  const auto count = [&](bool demoted) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const Decision& decision = retention.decisions[i];
      counts[i] = sure[i] || (demoted ? goes(decision) : decision.action == Action::trash);
    }
  };
  if (retention.trash_count != 0) {
    count(false);
    CKPT_CHECK(compare(checkpoints, policy, asked, retention, Action::trash, counts, out));
  }
  if (retention.demote_count != 0) {
    count(true);
    CKPT_CHECK(compare(checkpoints, policy, asked, retention, Action::demote, counts, out));
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace ckpt::catalog
