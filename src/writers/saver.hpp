#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/comm/comm.hpp"
#include "engine/io/io.hpp"
#include "engine/run/buffer_pool.hpp"
#include "format/result.hpp"
#include "format/universal/manifest.hpp"
#include "writers/background.hpp"
#include "writers/drain.hpp"
#include "writers/drainer.hpp"
#include "writers/pending_save.hpp"
#include "writers/save_table.hpp"
#include "writers/untold.hpp"

namespace ckpt {

/// Writes the checkpoints of one run, on all ranks of a job. Every method that is called collective is called by all
/// ranks in the same order. One thread; what it starts in the background never calls MPI.
///
/// A save: begin (rank 0 makes the partial directory), pieces, commit (agree on the table, copy to staging memory,
/// return). The background hashes, writes and syncs. `round`, called once a step, finds by one small all-reduce when
/// all ranks are done; then rank 0's background commits, and a later round informs all ranks.
class Saver {
 public:
  struct Options {
    std::string run_directory;  ///< STORE/RUN
    /// A directory on a faster disk of this node, for this run only: saves are committed there, then drained to the run
    /// directory. The ranks of a node use the same one; each node has a leader, the lowest of them, which commits and
    /// drains their files. Empty: saves are written to the run directory.
    std::string local_directory{};
    std::uint64_t drain_bytes_per_second = 0;  ///< 0: as fast as it goes
    std::uint64_t local_keep = 2;              ///< drained copies that stay in the local directory
    ForeignNames foreign_names{};              ///< of checkpoints that the local directory may be part of
    std::string generator;                     ///< program and version, for the manifest
    std::uint64_t staging_bytes = 0;  ///< at least smallest_staging_bytes(); if a whole save fits, commit only copies
    unsigned copy_threads = 2;
    unsigned write_threads = 1;
    std::chrono::milliseconds patience{60'000};  ///< for other ranks, before peer_failed
    /// Called in the trainer's thread with messages: what a save waits for, what was swept, and which saves failed.
    std::function<void(const std::string& text)> log{};
    /// Called for each failed save and drain; empty: `log` is called.
    std::function<void(const std::string& text)> log_failure{};
  };
  struct Description {
    std::uint64_t step = 0;
    Meta meta{};                          ///< framework, user; step and world size are filled in
    std::optional<universal::Run> run{};  ///< name, series, parent; the generation is filled in
  };

  static std::uint64_t smallest_staging_bytes();
  /// Creates missing directories. Undrained checkpoints of an earlier job are drained. Collective. `io` is only used to
  /// make further ones; `comm` outlives the saver.
  static Result<std::unique_ptr<Saver>> open(Io& io, Comm& comm, Options options);
  /// Waits for background work here except drains, which are interrupted; the next saver drains the newest. Saves that
  /// the ranks have not agreed on by then are not committed: call `wait` first.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Declares the tensors that follow layouts, for the saves after this. Local; ranks whose models differ learn it in
  /// commit.
  void set_model(Model model);

  /// Begins a save; drops an earlier one that was not committed. Collective.
  /// `prepare`: runs first on this rank and may take any time; if it fails on one rank, begin fails on all. May
  /// complete `description`.
  /// errors  usage: the ranks disagree on the step; io, no_space; peer_failed
  Result<> begin(Description description, const std::function<Result<>(Description&)>& prepare = {});
  /// Adds a part that this rank holds. Its memory must not change until commit returns. An error here also fails
  /// commit, on all ranks.
  /// errors  usage: not in the model, added twice, of the wrong size; an invalid description
  Result<> add(Piece piece);
  /// This rank cannot continue the current save: commit informs all ranks.
  void refuse(Error error);
  /// Text stored with the current save, from rank 0. Replaces earlier keys.
  void describe(std::vector<std::pair<std::string, std::string>> user);
  /// Copies everything to staging memory and returns: the caller's memory may change then. Collective. If staging
  /// memory is smaller than the save it waits until the rest was written, after a message to `log`. A wrong or missing
  /// piece on one rank fails all; later failures are the save's outcome, on all ranks.
  Result<std::shared_ptr<PendingSave>> commit();

  /// The message of a rank in every round.
  struct Vote {
    bool stop = false;  ///< of any rank
    bool due = false;   ///< of rank 0: a save is due by its clock
  };
  /// Completes the round that the last call started, acts on it, and starts another. Collective; returns the result of
  /// the completed one, so a vote takes effect one call later, on the same call of every rank.
  Result<Vote> round(Vote mine);
  /// Completes the round in flight, if there is one: no other collective is started before. Its result is kept for the
  /// next round. Collective; begin, commit, wait and wait_all do it themselves.
  Result<> settle_round();
  /// Rounds until a save is durable on all ranks, or failed (its outcome), or the time is over (`locked`, on all
  /// ranks). Collective.
  Result<> wait(const std::shared_ptr<PendingSave>& save, std::chrono::milliseconds timeout);
  /// The same until it is in the run's directory. Collective.
  Result<> wait_drained(const std::shared_ptr<PendingSave>& save, std::chrono::milliseconds timeout);
  /// Both for all saves in flight.
  Result<> wait_all(std::chrono::milliseconds timeout);
  /// The same, before closing: the worst unreported failure of any save or drain since opening. What was reported on
  /// one rank may be unreported on another: all ranks get the outcome of the lowest rank that has one. Collective.
  Result<> finish(std::chrono::milliseconds timeout);
  /// With several nodes: drains the newest checkpoint possible of those in local directories that the run lacks
  /// and that are newer than all there. Returns those whose bytes are gone, and why. No save is in flight.
  /// Collective.
  /// errors  those of a drain that may still succeed: the checkpoint exists, and must not be skipped
  Result<std::vector<std::string>> drain_left(std::chrono::milliseconds timeout);
  bool in_flight() const;
  /// Every node has its own local directory, with only its ranks' files.
  bool several_nodes() const { return several_nodes_; }

 private:
  struct Begun;
  struct Word;
  Saver(Io& io, Comm& comm, Options options);
  Deadline deadline() const;
  bool alone() const { return comm_.ranks() == 1; }
  bool tiered() const { return !options_.local_directory.empty(); }
  /// Where saves are committed.
  const std::string& home() const { return tiered() ? options_.local_directory : options_.run_directory; }
  bool leads() const { return comm_.rank() == leader_; }
  Result<> prepare_directory(Io& io, const std::string& directory);
  Result<> prepare(Io& io);
  void log(const std::string& text) const;
  Result<> on_committer(const std::function<Result<>(Io&)>& task);
  Result<> make_partial(PendingSave& save, std::uint64_t step);
  void drop_begun();
  void drop_publication(const std::shared_ptr<PendingSave>& save);
  void drop_when_flushed(const std::shared_ptr<PendingSave>& save);
  void describe(PendingSave& save, const Description& description) const;
  Result<bool> some_rank_waits(bool here, const Result<>& prepared, std::span<const Piece> pieces);
  void stage(const std::shared_ptr<PendingSave>& save, bool flush_beside);
  Result<> stage_beside_others(const std::function<void()>& stage, Staging& staging);
  void flush(const std::shared_ptr<PendingSave>& save, Io& io);
  void finish_flush(const std::shared_ptr<PendingSave>& save, Result<std::vector<Hash128>> leaves, double seconds);
  static std::string own_record(const PendingSave& save);
  Result<std::string> publish(Io& io, PendingSave& save, const std::vector<std::string>& parts);
  void publish_later(const std::shared_ptr<PendingSave>& save, std::vector<std::string> parts);
  Result<> start_round(Vote mine, bool timed_out);
  Result<Vote> finish_round(bool& timed_out);
  Result<> act();
  Result<> collect(const std::shared_ptr<PendingSave>& save);
  Result<> conclude(const std::shared_ptr<PendingSave>& save);
  void settle(const std::shared_ptr<PendingSave>& save, const Result<SaveOutcome>& outcome);
  Error lose_peers(Error error);
  void forget_resolved();
  /// `tells`: the caller reports the outcome, so no other code must.
  Result<> wait_event(const SaveEvent& event, std::chrono::milliseconds timeout, const char* late, bool tells = false);
  // Of several nodes: saver_nodes.cpp.
  Result<> find_nodes(Io& io);
  Result<> begin_elsewhere(PendingSave& save);
  Result<> spread(const std::shared_ptr<PendingSave>& save, const std::vector<std::string>& parts);
  Result<std::string> publish_sealed(Io& io, PendingSave& save);
  void take_back(const std::shared_ptr<PendingSave>& save);
  static Result<std::string> copy_part(Io& io, BufferPool& pool, const PendingSave& save, const DrainOptions& options,
                                       const std::atomic<bool>& stop);
  bool takes_part(const PendingSave& save) const;
  void start_step(const std::shared_ptr<PendingSave>& save);
  Result<bool> next_step(const std::shared_ptr<PendingSave>& save);
  void drop_drain(const std::shared_ptr<PendingSave>& save);
  // Of the local tier: saver_drain.cpp.
  /// The undrained checkpoint of an earlier job, or of this one, and the lowest leader that has it.
  struct Left {
    Undrained undrained{};
    int leader = 0;
  };
  DrainOptions drain_options() const;
  Result<> agree_on_tiers(Io& io);
  Result<> open_tiers(Io& io);
  Result<std::vector<Left>> left_on_all(const std::vector<Undrained>& mine);
  std::shared_ptr<PendingSave> take_up(const Left& left);
  void start_drain(const std::shared_ptr<PendingSave>& save, const std::string& name);
  void drain_later(const std::shared_ptr<PendingSave>& save);
  bool front_undrained() const;
  Result<> conclude_drain();
  void settle_drain(const std::shared_ptr<PendingSave>& save, Result<std::string> name);
  void lose_drains(const Error& error);
  void forget_drained();
  void close_drains();
  void tell_failure(const SaveEvent& event, const std::string& what);
  void tell_save(const PendingSave& save);

  Comm& comm_;
  const Options options_;
  Model model_{};
  std::shared_ptr<const SaveTable> table_{};
  Hash128 table_hash_{};
  std::unique_ptr<BufferPool> pool_{};
  std::unique_ptr<Begun> begun_{};
  std::deque<std::shared_ptr<PendingSave>> in_flight_{};  // oldest first; the same on all ranks
  std::uint64_t resolved_ = 0;                            // how many are no longer in flight; equal on all ranks
  std::vector<std::uint64_t> words_{};                    // of the round in flight
  Comm::Pending pending_{};
  std::vector<std::string> swept_{};                     // on opening: not yet logged
  Untold untold_{};                                      // the trainer's thread only
  Vote carried_{};                                       // the result of a wait, for the next round
  std::deque<std::shared_ptr<PendingSave>> draining_{};  // oldest first; the same on all ranks
  int leader_ = 0;                                       // the rank that commits this rank's files
  bool several_nodes_ = false;                           // with a local directory each
  std::vector<Undrained> undrained_{};                   // leaders: found on opening
  std::unique_ptr<Drainer> drainer_{};                   // leaders, of a local tier
  std::unique_ptr<Background> committer_{};              // rank 0: everything that makes, renames or removes a partial
  std::unique_ptr<Background> flusher_{};                // last: its tasks use all of the above
};

}  // namespace ckpt
