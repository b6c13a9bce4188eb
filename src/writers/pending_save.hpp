#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/publish/publish.hpp"
#include "engine/run/plan.hpp"
#include "engine/run/staging.hpp"
#include "format/hash.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/sums.hpp"
#include "writers/drain.hpp"
#include "writers/save_event.hpp"
#include "writers/save_files.hpp"

namespace ckpt {

/// Where a save's time went on one rank, in seconds, and its bytes.
struct SaveTimes {
  double plan_s = 0;    ///< table and layout
  double stage_s = 0;   ///< copying to staging memory, and waiting for room there
  double write_s = 0;   ///< hashing, writing and syncing, in the background
  double commit_s = 0;  ///< rank 0: manifest, sync, rename
  double drain_s = 0;   ///< rank 0: from the local tier to the run's directory, in the background
  std::uint64_t bytes = 0;
};

/// One save from commit() on, shared by the trainer's thread and the background. Thread-safe.
class PendingSave {
 public:
  explicit PendingSave(const Hash128& id) : id_(id) {}

  const Hash128& id() const { return id_; }
  /// On disk, where it survives the job: in the local tier if there is one, else in the run directory. Known in a call
  /// of the trainer's; with one rank by the background.
  const SaveEvent& durable() const { return durable_; }
  SaveEvent& durable() { return durable_; }
  /// In the run's directory. Without a local tier the same as `durable`, and never known before it.
  const SaveEvent& drained() const { return drained_; }
  SaveEvent& drained() { return drained_; }
  bool resolved() const { return durable_.known(); }
  /// Its outcome; `locked` while that is unknown.
  Result<SaveOutcome> outcome() const { return durable_.outcome(); }
  SaveTimes times() const;

 private:
  friend class Saver;
  enum class Phase : std::uint8_t { writing, publishing, over };

  void resolve(const Result<SaveOutcome>& outcome);
  void finish_writing(Result<std::vector<Hash128>> leaves, double seconds);
  void finish_publishing(Result<std::string> name, double seconds);
  /// Rank 0, on the drainer's thread. The first call counts.
  void finish_draining(Result<std::string> name, double seconds);
  /// No other process must agree on the drain: `drained` is known as soon as it has ended.
  void own_drain();
  void settle_drain(Result<std::string> name);
  bool written() const;    ///< this rank's part, well or not
  bool published() const;  ///< rank 0: the commit has ended, well or not
  /// Several nodes: the next step of the drain has begun.
  void begin_drain_step();
  bool drain_ended() const;  ///< rank 0: well or not

  const Hash128 id_;
  // Constant while the background works.
  std::uint64_t step = 0;
  bool tiered = false;  ///< will be drained
  std::string root{};   ///< the partial
  universal::Manifest manifest{};
  std::shared_ptr<const SaveTable> table{};
  std::unique_ptr<SaveFiles> files{};
  std::unique_ptr<Plan> plan{};
  std::unique_ptr<Staging> staging{};
  std::vector<universal::FileRecord> records{};
  Phase phase = Phase::writing;                ///< of the ranks' agreement: the trainer's thread only
  std::unique_ptr<Publication> publication{};  ///< rank 0: the committer's thread only

  // Of several nodes:
  std::string sealed{};                       ///< the files that their leaders publish: see Saver::spread
  unsigned drain_step = 0;                    ///< the trainer's thread only
  int drain_leader = 0;                       ///< the rank that begins and ends the drain
  std::unique_ptr<DrainInSteps> drain_job{};  ///< that rank: the drainer's thread only

  SaveEvent durable_{};
  SaveEvent drained_{};
  mutable std::mutex mutex_;
  SaveTimes times_{};                                     // guarded by mutex_
  std::optional<Result<std::vector<Hash128>>> leaves_{};  // guarded by mutex_
  std::optional<Result<std::string>> published_{};        // guarded by mutex_
  std::optional<Result<std::string>> drain_{};            // guarded by mutex_
  bool own_drain_ = false;                                // guarded by mutex_
};

}  // namespace ckpt
