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

/// Who asks for a save for reasons of time; not_yet where nobody does.
SaveAnswer asked(const IntervalPolicy& policy, const IntervalInputs& in, double planned_s) {
  SaveAnswer out;
  const std::uint64_t n = policy.every_steps.value_or(0);
  // Passed a multiple since the last save: what was held back at the multiple itself is made good at the next step.
  const bool passed = n != 0 && (in.last_step ? in.step / n > *in.last_step / n : in.step % n == 0);
  if (passed) {
    out.why = Why::steps;
    out.text = fmt::format("every {} steps", n);
  } else if (policy.every_s && in.now_s - in.last_begin_s >= *policy.every_s) {
    out.why = Why::time;
    out.text = fmt::format("{:.0f} s since the last save began", in.now_s - in.last_begin_s);
  } else if (policy.optimal && in.measured.saves == 0) {
    out.why = Why::first_measure;
    out.text = "a first save, to measure what one costs";
  } else if (policy.optimal) {
    const double since = in.now_s - in.last_end_s;
    // The end of this step or of the next, whichever lies nearer to the plan: no drift, and no half step too late.
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
    out.text = "this step is saved";
    return out;
  }
  if (policy.on_signal && in.stop_requested) {
    out.save = true;
    out.why = Why::signal;
    out.text = "a stop was asked for";
    return out;
  }
  if (policy.before_end_s && in.time_left_s && !in.saved_for_end) {
    // The next chance is one step later: too late, if it would then not be durable in time.
    const double needed = std::max(in.measured.costs.stall_s, in.measured.costs.drain_s) + *policy.before_end_s;
    if (*in.time_left_s - in.measured.step_s < needed) {
      out.save = true;
      out.why = Why::end;
      out.text = fmt::format("{:.0f} s are left of the job's time", *in.time_left_s);
      return out;
    }
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
        fmt::format("{}, but that would cost more than {:.3g} % of the time", wish.text, *policy.most_overhead * 100);
    wish.why = Why::held_overhead;
    return wish;
  }
  wish.save = true;
  return wish;
}

}  // namespace ckpt::catalog
