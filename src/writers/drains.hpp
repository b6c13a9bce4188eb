#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/comm.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"
#include "writers/drain.hpp"
#include "writers/drain_steps.hpp"
#include "writers/drainer.hpp"
#include "writers/nodes.hpp"
#include "writers/save_job.hpp"
#include "writers/save_reports.hpp"

namespace ckpt {

/// The drains of a job: saves that are durable in the local directory and are copied to the run directory, in the order
/// of saves. Rank 0 drains; with several nodes all leaders do, in steps (drain_steps.hpp). The rounds carry `drained`
/// and call `conclude`, by which all ranks learn how a drain has ended.
///
/// Without a local directory there are none. The trainer's thread, except where noted.
class Drains {
 public:
  using Save = std::shared_ptr<SaveJob>;
  struct Options {
    DrainOptions directories{};
    std::chrono::milliseconds patience{60'000};
    Nodes nodes{};
  };
  Drains(Comm& comm, Options options, SaveReports& reports)
      : comm_(comm), options_(std::move(options)), reports_(reports) {}

  /// On leaders, when both directories exist: finds what an earlier job has left, and starts the thread that drains.
  /// errors  usage: both directories are one, or the local one holds another run
  Result<> open(Io& io);
  /// Drains the newest of those that `open` found on any leader. Collective.
  Result<> resume();
  /// Drains the newest checkpoint possible of those in local directories that the run lacks and that are newer than all
  /// there. Returns those whose bytes are gone, and why. No save is in flight. Collective.
  ///
  /// on_disk  runs a task with an Io, on leaders
  /// wait     until the drain has ended on all ranks; its outcome
  /// errors   those of a drain that may still succeed: the checkpoint exists, and must not be skipped
  Result<std::vector<std::string>> drain_left(
      const std::function<Result<>(const std::function<Result<>(Io&)>&)>& on_disk,
      const std::function<Result<>(const PendingSave&)>& wait);

  /// One rank: drains a save that is durable now. Any thread.
  void start(const Save& save, const std::string& name);
  /// A save is durable: from now on the rounds are about its drain, too. On all ranks, in one order.
  void add(const Save& save);
  /// Oldest first; the same on all ranks.
  const std::deque<Save>& draining() const { return draining_; }
  /// Whether this rank has nothing left to do for the oldest drain; if there is none yet, this is not about it.
  bool drained() const;
  /// All ranks have `drained`: the next step, or all learn the outcome. Collective.
  Result<> conclude();
  std::uint64_t ended_count() const { return ended_count_; }

  /// The other ranks can no longer be informed. Rank 0's drains continue; those that need other ranks fail.
  void lose(const Error& error);
  /// Takes note of drains that have ended, and of what the drainer has to say.
  void poll();
  /// Interrupts all.
  void close();
  /// Generations below this are taken in the run directory, as far as is known here. Any thread.
  std::uint64_t least_generation() const { return drainer_ ? drainer_->least_generation() : 0; }

 private:
  /// The undrained checkpoint of an earlier job, or of this one, and the lowest leader that has it.
  struct Left {
    Undrained undrained{};
    int leader = 0;
  };
  bool alone() const { return comm_.ranks() == 1; }
  Deadline deadline() const { return comm_.now() + options_.patience; }
  DrainSteps steps() const { return {comm_, options_.patience, options_.nodes, drainer_.get()}; }
  Result<std::vector<Left>> left_on_all(const std::vector<Undrained>& mine);
  Save take_up(const Left& left);
  void complete(const Save& save, Result<std::string> name);

  Comm& comm_;
  const Options options_;
  SaveReports& reports_;
  std::vector<Undrained> undrained_{};  // leaders: found on opening
  std::deque<Save> draining_{};
  std::uint64_t ended_count_ = 0;
  std::unique_ptr<Drainer> drainer_{};  // leaders
};

}  // namespace ckpt
