#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "catalog/interval_policy.hpp"
#include "writers/pending_save.hpp"
#include "writers/rounds.hpp"

namespace ckpt {

/// When the next save of a run is due, and when its trainer should stop. Knows no disk and no other rank: it makes this
/// rank's vote for a round, and its answer from the votes of all. One thread.
class SaveSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Vote = Rounds::Vote;
  struct Options {
    std::uint64_t every_steps = 0;                ///< 0: not by steps
    std::chrono::duration<double> every{0};       ///< 0: not by time
    std::chrono::duration<double> time_limit{0};  ///< of the job; 0: none
    bool optimal = false;                         ///< the interval that loses the least time: see IntervalPolicy
    double most_overhead = 0;                     ///< a cap over all of these, of wall time, 0 to 1; 0: none
    double mtbf_s = 0;                            ///< of the job, for `optimal`; 0: unknown
    double restart_s = 0;                         ///< time lost at a failure before training continues
    bool by_store = false;                        ///< the rules of a store replace all of these: see set_rules
    bool decides = true;                          ///< rank 0: by rules of time and cost
    std::function<Time()> clock{};                ///< none: the steady clock
  };

  /// The job begins now.
  explicit SaveSchedule(Options options);
  /// The store's rules. Rank 0.
  void set_rules(const catalog::IntervalRules& rules);

  /// A step has ended: this rank's vote. `signalled`: the user has asked it to stop.
  Vote vote(std::uint64_t step, bool signalled);
  /// Whether to save now, by the votes of all ranks, at the step of the last `vote`. The same on all ranks.
  bool answer(std::uint64_t step, Vote of_all);
  /// All ranks know that training should stop.
  bool stop_told() const { return stop_told_; }

  void resumed_at(std::uint64_t step) { last_step_ = step; }
  void begin_save(std::uint64_t step);
  /// Training continues. `commit_time`: what commit took.
  void end_commit(std::shared_ptr<const PendingSave> save, std::chrono::duration<double> commit_time);

 private:
  Time now() const { return options_.clock ? options_.clock() : std::chrono::steady_clock::now(); }
  double seconds(Time time) const { return std::chrono::duration<double>(time - opened_).count(); }
  catalog::IntervalPolicy policy() const;
  bool is_due(std::uint64_t step);
  bool is_near_end() const;
  void measure_save();

  const Options options_;
  std::optional<catalog::IntervalRules> rules_{};
  Time opened_{};
  // Of the last save: when it began; when training continued after it (or at the opening); its step, or the one resumed
  // from; the query before this one, if nothing was saved since.
  Time last_begin_{};
  Time last_end_{};
  std::optional<std::uint64_t> last_step_{};
  std::optional<Time> last_asked_{};
  std::shared_ptr<const PendingSave> latest_save_{};  // how long it took is known later
  double stall_s_ = 0;
  std::chrono::duration<double> longest_save_{0};
  catalog::MeasuredCosts measured_{};
  double planned_interval_s_ = 0;
  bool saved_for_end_ = false;
  bool due_told_ = false;  // the vote in flight asks for a save
  bool stop_told_ = false;
};

}  // namespace ckpt
