#include "catalog/interval_policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ckpt::catalog {
namespace {

using Why = SaveAnswer::Why;

constexpr double kNewest = 0.3;  // weight of a new measure: three quarters of the memory is the last four saves

double smoothed(double before, double now, bool first) {
  if (!(now >= 0) || !std::isfinite(now)) return before;
  return first ? now : before + kNewest * (now - before);
}

/// The shortest T at which C/(T+C) stays within the cap.
double interval_of_cap(double cap, double stall_s) {
  if (!(cap > 0)) return INFINITY;
  return cap >= 1 ? 0 : stall_s * (1 - cap) / cap;
}

/// How long before the job's time limit the last save must begin.
double needed_before_end(const IntervalPolicy& policy, const IntervalInputs& in) {
  return std::max(in.measured.costs.stall_s, in.measured.costs.drain_s) + policy.before_end_s.value_or(0);
}

/// In words, as policy files have it: "30m" is "30 min".
std::string span_text(double seconds) {
  for (const auto& [unit, length] : {std::pair{"d", 86400.0}, std::pair{"h", 3600.0}, std::pair{"min", 60.0}})
    if (seconds >= length) return fmt::format("{:.4g} {}", seconds / length, unit);
  return fmt::format("{:.4g} s", seconds);
}

/// The time rule that asks for a save; not_yet if none does.
SaveAnswer asked(const IntervalPolicy& policy, const IntervalInputs& in, double planned_s) {
  SaveAnswer out;
  const std::uint64_t n = policy.every_steps.value_or(0);
  // Passed a multiple since the last save: a save delayed at the multiple itself happens at the next step. Step 0 is a
  // multiple of everything, and has nothing to lose yet.
  const bool passed = n != 0 && in.step != 0 && (in.last_step ? in.step / n > *in.last_step / n : in.step % n == 0);
  if (passed) {
    out.why = Why::steps;
    out.text = fmt::format("every {} steps", n);
  } else if (policy.every_s && in.now_s - in.last_begin_s >= *policy.every_s) {
    out.why = Why::time;
    out.text = fmt::format("{:.0f} s since the last save began", in.now_s - in.last_begin_s);
  } else if (policy.optimal && in.measured.saves == 0) {
    out.why = Why::first_measure;
    out.text = "first save, to measure its cost";
  } else if (policy.optimal) {
    const double since = in.now_s - in.last_end_s;
    // The end of this step or of the next, whichever is nearer to the plan: no drift, and at most half a step late.
    if (since + in.measured.step_s / 2 >= planned_s) {
      out.why = Why::optimal;
      out.text = fmt::format("{:.0f} s since the last save; {:.0f} s is best", since, planned_s);
    }
  }
  return out;
}

}  // namespace

MeasuredCosts with_save(MeasuredCosts before, double stall_s, double drain_s) {
  const bool first = before.saves == 0;
  before.costs.stall_s = smoothed(before.costs.stall_s, stall_s, first);
  before.costs.drain_s = smoothed(before.costs.drain_s, drain_s, first);
  ++before.saves;
  return before;
}

MeasuredCosts with_step(MeasuredCosts before, double step_s) {
  before.step_s = smoothed(before.step_s, step_s, before.step_s == 0);
  return before;
}

double planned_interval(const IntervalPolicy& policy, const MeasuredCosts& measured, std::uint64_t most_in_flight,
                        double planned_s) {
  double wanted = best_interval(measured.costs);
  if (wanted == 0) wanted = base_rule(0, measured.costs, most_in_flight).interval_s;  // no failure rate: 5 % at most
  wanted =
      std::max(wanted, 1.1 * measured.costs.drain_s / static_cast<double>(std::max<std::uint64_t>(most_in_flight, 1)));
  if (policy.most_overhead) wanted = std::max(wanted, interval_of_cap(*policy.most_overhead, measured.costs.stall_s));
  wanted = std::max(std::min(wanted, policy.most_interval_s), policy.least_interval_s);
  const bool near = planned_s > 0 && std::fabs(wanted - planned_s) <= policy.hysteresis * planned_s;
  return near ? planned_s : wanted;
}

SaveAnswer should_save(const IntervalPolicy& policy, const IntervalInputs& in) {
  SaveAnswer out;
  const double planned = policy.optimal && in.measured.saves != 0
                             ? planned_interval(policy, in.measured, in.most_in_flight, in.planned_interval_s)
                             : in.planned_interval_s;
  out.planned_interval_s = planned;
  if (in.last_step && *in.last_step == in.step) {
    out.why = Why::done;
    out.text = "this step is already saved";
    return out;
  }
  if (policy.on_signal && in.stop_requested) {
    out.save = true;
    out.why = Why::signal;
    out.text = "stop requested";
    return out;
  }
  if (policy.before_end_s && in.time_left_s && !in.saved_for_end) {
    // The next chance is one step later: too late, if it would then not be durable in time.
    if (*in.time_left_s - in.measured.step_s < needed_before_end(policy, in)) {
      out.save = true;
      out.why = Why::end;
      out.text = fmt::format("{:.0f} s left until the job's time limit", *in.time_left_s);
      return out;
    }
  }
  if (in.step == 0) {
    out.planned_interval_s = planned;
    out.save = policy.at_start && !in.last_step;
    out.why = out.save ? Why::start : Why::not_yet;
    if (out.save) out.text = "before the first step";
    return out;
  }
  SaveAnswer wish = asked(policy, in, planned);
  wish.planned_interval_s = planned;
  if (wish.why == Why::not_yet) return wish;
  if (in.in_flight >= in.most_in_flight) {
    wish.text = fmt::format("{}, but {} saves are in flight", wish.text, in.in_flight);
    wish.why = Why::held_in_flight;
    return wish;
  }
  const bool measured = in.measured.saves != 0;
  if (policy.most_overhead && measured &&
      in.now_s - in.last_end_s < interval_of_cap(*policy.most_overhead, in.measured.costs.stall_s)) {
    wish.text =
        fmt::format("{}, but saves would cost more than {:.3g} % of the time", wish.text, *policy.most_overhead * 100);
    wish.why = Why::held_overhead;
    return wish;
  }
  wish.save = true;
  return wish;
}

NextSave next_save(const IntervalPolicy& policy, const IntervalInputs& in) {
  NextSave out{.answer = should_save(policy, in)};
  out.planned_interval_s = policy.optimal ? out.answer.planned_interval_s : 0;
  if (const std::uint64_t n = policy.every_steps.value_or(0); n != 0) {
    const std::uint64_t passed = in.last_step ? *in.last_step / n : in.step == 0 ? 0 : (in.step - 1) / n;
    std::uint64_t step = 0;
    if (!__builtin_mul_overflow(passed + 1, n, &step)) out.step = std::max(step, in.step);
  }
  const auto sooner = [&](double in_s) { out.in_s = std::min(out.in_s.value_or(INFINITY), std::max(in_s, 0.0)); };
  const double since_end = in.now_s - in.last_end_s;
  const bool measured = in.measured.saves != 0;
  if (policy.every_s) sooner(*policy.every_s - (in.now_s - in.last_begin_s));
  if (policy.optimal) sooner(measured ? out.answer.planned_interval_s - since_end - in.measured.step_s / 2 : 0);
  if (out.in_s && policy.most_overhead && measured)
    out.in_s = std::max(*out.in_s, interval_of_cap(*policy.most_overhead, in.measured.costs.stall_s) - since_end);
  if (policy.before_end_s && in.time_left_s && !in.saved_for_end)
    sooner(*in.time_left_s - needed_before_end(policy, in) - in.measured.step_s);
  return out;
}

bool asks(const IntervalPolicy& policy) {
  return policy.every_steps || policy.every_s || policy.optimal || policy.before_end_s;
}

std::vector<std::string> interval_meaning(const IntervalRules& rules) {
  const IntervalPolicy& policy = rules.policy;
  std::vector<std::string> out;
  if (policy.every_steps) out.push_back(fmt::format("every {} steps", *policy.every_steps));
  if (policy.every_s) out.push_back(fmt::format("every {}", span_text(*policy.every_s)));
  if (policy.optimal) {
    out.push_back(fmt::format("at the interval that minimises lost time; between {} and {}",
                              span_text(policy.least_interval_s), span_text(policy.most_interval_s)));
    out.push_back(rules.mtbf_s > 0 ? fmt::format("one failure in {}", span_text(rules.mtbf_s))
                                   : "failure rate from the run's history");
  }
  if (policy.before_end_s)
    out.push_back(fmt::format("durable {} before the job's time limit", span_text(*policy.before_end_s)));
  if (policy.on_signal) out.emplace_back("on a stop request");
  if (policy.at_start) out.emplace_back("before the first step");
  if (policy.most_overhead) out.push_back(fmt::format("at most {:.3g} % of the time", *policy.most_overhead * 100));
  return out;
}

}  // namespace ckpt::catalog
