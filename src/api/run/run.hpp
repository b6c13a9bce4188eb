#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/run/checkpoint.hpp"
#include "api/run/checkpoint_choice.hpp"
#include "api/run/exit_report.hpp"
#include "api/run/replica_load.hpp"
#include "api/run/save_schedule.hpp"
#include "api/run/save_series.hpp"
#include "api/run/stop_signal.hpp"
#include "engine/comm/comm.hpp"
#include "engine/io/io.hpp"
#include "writers/saver.hpp"

namespace ckpt {

/// The checkpoints of one run on one rank: saving with a Saver, loading with fall-back. One thread.
class Run {
 public:
  struct Options {
    std::uint64_t staging_bytes = 0;  ///< 0: commit returns when the checkpoint is durable
    unsigned copy_threads = 2;
    unsigned write_threads = 1;
    std::chrono::milliseconds patience{60'000};
    std::uint64_t every_steps = 0;                ///< 0: not by steps
    std::chrono::duration<double> every{0};       ///< 0: not by time
    std::chrono::duration<double> time_limit{0};  ///< of the job, from opening on; 0: none
    bool catch_signals = false;
    bool optimal = false;                      ///< the interval that loses the least time: see IntervalPolicy
    double most_overhead = 0;                  ///< a cap over all of these, of wall time, 0 to 1; 0: none
    double mtbf_s = 0;                         ///< of the job, for `optimal`; 0: unknown
    double restart_s = 0;                      ///< time lost at a failure before training continues
    std::string policy_store{};                ///< its ckpt.toml replaces all of these; rank 0 reads it
    std::string local_directory{};             ///< see Saver::Options; loads take its copies first
    std::uint64_t drain_bytes_per_second = 0;  ///< 0: as fast as it goes
    std::uint64_t local_keep = 2;              ///< drained copies that stay in the local directory
    bool verify_all = false;                   ///< loads read every leaf completely
    Replicas replicas = Replicas::automatic;   ///< `read` on one rank is `read` on all
    std::string framework{};
    std::string framework_version{};
    std::function<void(const std::string&)> log{};  ///< none: the first failure goes to stderr
    /// What `every` and `time_limit` are measured with; none: the steady clock.
    std::function<std::chrono::steady_clock::time_point()> clock{};
  };

  /// Collective. `io` is only used to make further ones; if it is an error, all ranks get it.
  static Result<std::unique_ptr<Run>> open(Result<std::unique_ptr<Io>> io, std::unique_ptr<Comm> comm,
                                           const std::string& run_directory, Options options);
  /// Waits for saves in flight, on all ranks.
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Collective: see ckpt_should_save.
  Result<bool> should_save(std::uint64_t step);
  bool stop_requested() const {
    return schedule_->stop_told() || (comm_->ranks() == 1 && signal_ && signal_->requested());
  }
  bool ranks_lost() const { return comm_->is_lost(); }

  void set_model(Model model);
  const Model& model() const { return model_; }
  /// Collective. The first save after a load of a checkpoint that is not the newest begins a new series. `mine`, here and in
  /// loads: the result of this rank's own preparations.
  Result<> begin(std::uint64_t step, const Result<>& mine = {});
  Saver& saver() { return *saver_; }
  /// Collective. `user` is kept with the checkpoint, rank 0's. Without staging memory it returns when the
  /// save has ended, with its failure.
  Result<std::shared_ptr<PendingSave>> commit(std::vector<std::pair<std::string, std::string>> user);
  Result<> wait_all(std::chrono::milliseconds timeout) { return saver_->wait_all(timeout); }
  /// Waits for saves in flight; returns the worst unreported failure of any save. Collective; the last call.
  Result<> close();

  /// The newest checkpoint that opens, and is not superseded; with `step` the newest save of it, superseded or not. Only
  /// a look: what the job saves next does not depend on it. Collective.
  /// errors  not_found: there is none; corrupt: none is usable; io: the run cannot be listed; usage: the ranks differ in
  ///         `step`
  Result<std::unique_ptr<Checkpoint>> usable(std::optional<std::uint64_t> step = {}, const Result<>& mine = {});
  /// The caller has loaded a checkpoint that `usable` returned by itself, which then counts as loaded. Collective.
  /// errors  on all ranks: usage: on one it is null, or not the last one that `usable` returned
  Result<> loaded(const Checkpoint* checkpoint);
  /// The steps of the run's checkpoints, newest save first, each once, as rank 0 sees them. Collective.
  /// errors  io: the run cannot be listed
  Result<std::vector<std::uint64_t>> steps();
  struct Loaded {
    std::uint64_t step = 0;
    Checkpoint::Report report{};
    std::vector<std::string> skipped{};  ///< newer ones, and nearer copies, that are damaged
  };
  /// Collective: all ranks load from one checkpoint, the newest that is complete on all of them, or that of `step`.
  /// Replicated data that all its holders request is read by one of them; see Replicas.
  Result<Loaded> load(std::span<const NamedRead> reads, bool partial, const Result<>& mine = {},
                      std::optional<std::uint64_t> step = {});

  /// The checkpoint that the last load took, opened again over `io`. Local.
  /// errors  usage: nothing was loaded; not_found: it was deleted since, or another has its name; those of opening it
  Result<std::unique_ptr<Checkpoint>> loaded_checkpoint(Io& io) const;

  int rank() const { return comm_->rank(); }
  Checkpoint::ReadOptions read_options(bool partial) const;
  Io& io() { return *io_; }

 private:
  Run() = default;
  Deadline deadline() const;
  void log(const std::string& text) const;
  Result<> read_rules();
  CheckpointChoice new_choice(std::optional<std::uint64_t> step) const;
  std::string near_directory() const;
  Result<> finish_drains(std::vector<std::string>& skipped);
  Result<> agree_on_options();
  void note_loaded(const Checkpoint& checkpoint, const RunSeries& at_load);
  Result<> mark_restored(const Checkpoint& checkpoint, bool is_whole);

  Options options_{};
  std::string run_directory_{};
  std::unique_ptr<Io> io_{};
  std::unique_ptr<Comm> comm_{};
  std::unique_ptr<BufferPool> read_pool_{};
  std::optional<StopSignal> signal_{};
  Model model_{};
  std::optional<SaveSchedule> schedule_{};
  std::uint64_t last_step_ = 0;  // of the save that was begun
  std::optional<SaveSeries> series_{};
  std::string usable_path_{};  // of the checkpoint that `usable` returned last; "" before
  RunSeries at_usable_{};      // the run as it was listed for it
  std::optional<ReplicaLoad> replica_load_{};
  std::optional<ExitReport> exit_report_{};
  std::unique_ptr<Saver> saver_{};  // last: its threads use the above
};

}  // namespace ckpt
