#pragma once

#include <chrono>
#include <cstdint>
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
#include "engine/publish/publish.hpp"
#include "engine/run/buffer_pool.hpp"
#include "format/result.hpp"
#include "format/universal/manifest.hpp"
#include "writers/commits.hpp"
#include "writers/committer.hpp"
#include "writers/drains.hpp"
#include "writers/flusher.hpp"
#include "writers/nodes.hpp"
#include "writers/pending_save.hpp"
#include "writers/rounds.hpp"
#include "writers/save_reports.hpp"
#include "writers/save_table.hpp"

namespace ckpt {

/// Writes the checkpoints of one run, on all ranks of a job. Every method that is called collective is called by all
/// ranks in the same order. One thread; what it starts in the background never calls MPI.
///
/// A save: begin (rank 0 makes the partial directory), pieces, commit (agree on the table, copy to staging memory,
/// return). The background hashes, writes and syncs (flusher.hpp). `round`, called once a step, finds by one small
/// all-reduce when all ranks are done (rounds.hpp); then rank 0's background commits, and a later round informs all
/// ranks (commits.hpp). With a local directory a drain follows (drains.hpp).
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
    CheckRemovable check_removable{};          ///< of copies in the local directory
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

  using Vote = Rounds::Vote;
  /// Once a step: see Rounds::round. Collective.
  Result<Vote> round(Vote mine) { return rounds_.round(mine); }
  /// See Rounds::settle. Collective; begin, commit, wait and wait_all do it themselves.
  Result<> finish_round() { return rounds_.finish_pending(); }
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
  /// Every node has its own local directory, with only its ranks' files.
  bool several_nodes() const { return nodes_.several; }

 private:
  struct Begun;
  Saver(Comm& comm, Options options);
  Deadline deadline() const { return comm_.now() + options_.patience; }
  bool alone() const { return comm_.ranks() == 1; }
  bool tiered() const { return !options_.local_directory.empty(); }
  bool leads() const { return nodes_.leads(comm_.rank()); }
  /// Where saves are committed.
  const std::string& home() const { return tiered() ? options_.local_directory : options_.run_directory; }
  // Opening.
  Result<> open_here(Io& io, std::vector<std::string>& notes);
  Result<> prepare_directories(Io& io, std::vector<std::string>& notes);
  // One save.
  Result<> begin_elsewhere(SaveJob& save);
  void drop_begun();
  void fill_manifest(SaveJob& save, const Description& description) const;
  Result<bool> some_rank_waits(bool here, const Result<>& prepared, std::span<const Piece> pieces);
  // What its parts tell it.
  void part_written(const std::shared_ptr<SaveJob>& save);
  void save_published(const std::shared_ptr<SaveJob>& save, const Result<std::string>& name);
  void save_ended(const std::shared_ptr<SaveJob>& save);
  Rounds::Actions round_actions();
  void poll();

  Comm& comm_;
  const Options options_;
  SaveReports reports_;
  Model model_{};
  std::shared_ptr<const SaveTable> table_{};
  Hash128 table_hash_{};
  Nodes nodes_{};
  std::unique_ptr<BufferPool> pool_{};
  std::unique_ptr<Begun> begun_{};
  // In the order in which they are opened: each uses those above. The threads of the committer and the flusher are
  // ended by the destructor of this.
  std::optional<Drains> drains_{};
  std::optional<Flusher> flusher_{};
  std::optional<Committer> committer_{};
  std::optional<Commits> commits_{};
  Rounds rounds_;
};

}  // namespace ckpt
