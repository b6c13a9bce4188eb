#include "api/run/save_schedule.hpp"

#include <algorithm>
#include <utility>

namespace ckpt {
namespace {

// A stop for the time limit is requested this early, in durations of the longest save seen.
constexpr double kSavesBeforeLimit = 2;
constexpr double kLeastSecondsBeforeLimit = 10;

}  // namespace

SaveSchedule::SaveSchedule(Options options) : options_(std::move(options)) {
  opened_ = last_begin_ = last_end_ = now();
  measured_.costs = {.restart_s = options_.restart_s, .mtbf_s = options_.mtbf_s};
}

void SaveSchedule::set_rules(const catalog::IntervalRules& rules) {
  rules_ = rules;
  measured_.costs = {.restart_s = rules.restart_s, .mtbf_s = rules.mtbf_s};
}

/// Rank 0's rules: the store's, or the options of time and cost.
catalog::IntervalPolicy SaveSchedule::policy() const {
  catalog::IntervalPolicy policy = rules_ ? rules_->policy : catalog::IntervalPolicy{.optimal = options_.optimal};
  policy.on_signal = false;  // that is a separate vote
  if (rules_) return policy;
  const bool capped = options_.most_overhead > 0;
  if (options_.every.count() > 0) policy.every_s = options_.every.count();
  if (capped) policy.most_overhead = options_.most_overhead;
  if (capped && options_.every_steps != 0) policy.every_steps = options_.every_steps;
  return policy;
}

/// By the rules of time and cost.
bool SaveSchedule::is_due(std::uint64_t step) {
  const catalog::IntervalPolicy policy = this->policy();
  std::optional<double> time_left_s;
  if (options_.time_limit.count() > 0) time_left_s = options_.time_limit.count() - seconds(now());
  const catalog::IntervalInputs inputs{.step = step,
                                       .now_s = seconds(now()),
                                       .last_step = last_step_,
                                       .last_begin_s = seconds(last_begin_),
                                       .last_end_s = seconds(last_end_),
                                       .in_flight = policy.optimal && latest_save_ ? 1U : 0U,
                                       .time_left_s = time_left_s,
                                       .saved_for_end = saved_for_end_,
                                       .planned_interval_s = planned_interval_s_,
                                       .measured = measured_};
  const catalog::SaveAnswer answer = catalog::should_save(policy, inputs);
  if (answer.why != catalog::SaveAnswer::Why::end) planned_interval_s_ = answer.planned_interval_s;
  saved_for_end_ = saved_for_end_ || answer.why == catalog::SaveAnswer::Why::end;
  return answer.save;
}

bool SaveSchedule::is_near_end() const {
  if (options_.time_limit.count() <= 0) return false;
  const double before = std::max(kLeastSecondsBeforeLimit, kSavesBeforeLimit * longest_save_.count());
  return seconds(now()) + before >= options_.time_limit.count();
}

/// The duration of the last save, as far as known.
void SaveSchedule::measure_save() {
  if (!latest_save_) return;
  const SaveTimes times = latest_save_->times();
  const std::chrono::duration<double> took(times.plan_s + times.stage_s + times.write_s + times.commit_s);
  longest_save_ = std::max(longest_save_, took);
  if (!latest_save_->resolved()) return;
  measured_ = with_save(measured_, stall_s_, std::max(stall_s_, took.count()));
  latest_save_.reset();
}

SaveSchedule::Vote SaveSchedule::vote(std::uint64_t step, bool signalled) {
  measure_save();
  if (last_asked_) measured_ = with_step(measured_, std::chrono::duration<double>(now() - *last_asked_).count());
  last_asked_ = now();
  // Alone the answer comes at once; else one call later, when the next vote must not say it again.
  const bool due = options_.decides && !due_told_ && is_due(step);
  due_told_ = due_told_ || due;
  return {.stop = signalled || is_near_end(), .due = due};
}

bool SaveSchedule::answer(std::uint64_t step, Vote of_all) {
  const bool stops_now = of_all.stop && !stop_told_;  // saved once; ending is up to the trainer
  stop_told_ = stop_told_ || of_all.stop;
  if (of_all.due) {
    last_begin_ = now();
    due_told_ = false;
  }
  // Step 0 is a multiple of everything, and has nothing to lose yet. If a cap may delay the save, rank 0 decides, as
  // for time rules; else every rank knows at once.
  const bool by_step = options_.every_steps != 0 && options_.most_overhead <= 0 && !options_.by_store && step != 0 &&
                       step % options_.every_steps == 0;
  return stops_now || of_all.due || by_step;
}

void SaveSchedule::begin_save(std::uint64_t step) {
  last_begin_ = now();
  last_step_ = step;
  last_asked_.reset();
  due_told_ = false;  // beginning drops that vote
}

void SaveSchedule::end_commit(std::shared_ptr<const PendingSave> save, std::chrono::duration<double> commit_time) {
  longest_save_ = std::max(longest_save_, commit_time);
  measure_save();
  latest_save_ = std::move(save);
  last_end_ = now();
  stall_s_ = std::chrono::duration<double>(last_end_ - last_begin_).count();
}

}  // namespace ckpt
