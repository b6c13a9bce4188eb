#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "catalog/interval.hpp"

/// Whether to save now. A pure function: rank 0 calls it with its own clock and measurements, and its answer is sent to
/// all ranks with `should_save`, so that all save at the same step.
namespace ckpt::catalog {

/// When to save. Rules are joined by "or"; caps delay only the first three.
struct IntervalPolicy {
  std::optional<std::uint64_t>
      every_steps{};                      ///< when a multiple is reached, or was passed since the last save; at least 1
  std::optional<double> every_s{};        ///< since the last save began
  bool optimal = false;                   ///< the best interval for the measured costs, in whole steps
  bool on_signal = true;                  ///< stop requested
  std::optional<double> before_end_s{};   ///< a save is durable this long before the job's time limit
  std::optional<double> most_overhead{};  ///< a cap: of wall time, 0 to 1
  double least_interval_s = 0;            ///< clamps of `optimal`
  double most_interval_s = 86'400;
  double hysteresis = 0.2;  ///< `optimal` changes the interval only by more than this share
  bool at_start = false;    ///< step 0 too, before training, if there is no save yet

  bool operator==(const IntervalPolicy&) const = default;
};

/// Measures, smoothed (weight 0.3 of the newest).
struct MeasuredCosts {
  Costs costs{};      ///< stall_s and drain_s are measured, the others given or estimated
  double step_s = 0;  ///< compute of one step
  std::uint64_t saves = 0;
};
MeasuredCosts with_save(MeasuredCosts before, double stall_s, double drain_s);
MeasuredCosts with_step(MeasuredCosts before, double step_s);

/// Rank 0's knowledge at the time of the query. Times are seconds of one monotonic clock.
struct IntervalInputs {
  std::uint64_t step = 0;
  double now_s = 0;
  std::optional<std::uint64_t> last_step{};  ///< of the newest save of this job, or the step resumed from
  double last_begin_s = 0;                   ///< when that save began; without one: when the job began
  double last_end_s = 0;                     ///< when it gave training back
  std::uint64_t in_flight = 0;               ///< saves that are not durable yet
  std::uint64_t most_in_flight = 1;
  bool stop_requested = false;
  std::optional<double> time_left_s{};  ///< until the job's time limit
  bool saved_for_end = false;           ///< `before_end` has had its save
  double planned_interval_s = 0;        ///< of the previous answer; 0 = none
  MeasuredCosts measured{};
};

struct SaveAnswer {
  bool save = false;
  enum class Why : std::uint8_t {
    not_yet,
    first_measure,
    steps,
    time,
    optimal,
    signal,
    end,
    held_overhead,
    held_in_flight,
    done,
    start
  } why = Why::not_yet;
  double planned_interval_s = 0;  ///< to be given back with the next question
  std::string text{};             ///< for the log: "every 500 steps"
};

/// Decides for the step that has just ended.
/// 1 a step that is already saved is not saved again; step 0 is saved only by `at_start` or 2
/// 2 a signal, then the end of the job, ask for a save at any cost
/// 3 every_steps, every_s and optimal ask; a save in flight (most_in_flight) and the overhead cap delay them to
/// the
///   next step. `optimal` without a measurement saves once to get one.
SaveAnswer should_save(const IntervalPolicy& policy, const IntervalInputs& inputs);

/// The latest time of the next save, as far as it can be predicted.
struct NextSave {
  SaveAnswer answer{};                  ///< about the step that is asked about
  std::optional<std::uint64_t> step{};  ///< the first step at which `every_steps` asks; nothing: not by steps
  std::optional<double> in_s{};         ///< until a rule of time asks; 0 = it does; nothing: no such rule
  double planned_interval_s = 0;        ///< of `optimal`; 0 = none
};
/// The answer of should_save now, and when it will be yes: at `step`, or once `in_s` have passed, whichever is first.
NextSave next_save(const IntervalPolicy& policy, const IntervalInputs& inputs);

/// The [interval] table of a policy file.
struct IntervalRules {
  IntervalPolicy policy{};
  double mtbf_s = 0;     ///< of the job, for `optimal`; 0 = not given
  double restart_s = 0;  ///< time lost at a failure before training continues
  bool operator==(const IntervalRules&) const = default;
};
/// The same of the runs that a glob names.
struct RunInterval {
  std::string runs;
  IntervalRules rules{};
  bool operator==(const RunInterval&) const = default;
};
/// Whether anything in it ever asks for a save, a signal not counted.
bool asks(const IntervalPolicy& policy);
/// Its rules in words, one per line: "every 500 steps", "every 30 min", "at most 3 % of the time".
std::vector<std::string> interval_meaning(const IntervalRules& rules);

/// The interval for `optimal`: best_interval, at least 1.1 D / in flight and the minimum of the overhead cap, clamped;
/// `planned_s` stays while the new value is within the hysteresis of it.
double planned_interval(const IntervalPolicy& policy, const MeasuredCosts& measured, std::uint64_t most_in_flight,
                        double planned_s);

}  // namespace ckpt::catalog
