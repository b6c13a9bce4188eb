#pragma once

#include <cstdint>
#include <mutex>

#include "format/hash.hpp"
#include "format/result.hpp"
#include "writers/save_event.hpp"

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

/// What a trainer sees of a save after commit(). Thread-safe.
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
  SaveTimes times() const {
    const std::lock_guard held(mutex_);
    return times_;
  }

 protected:
  mutable std::mutex mutex_{};
  SaveTimes times_{};  // guarded by mutex_

 private:
  const Hash128 id_;
  SaveEvent durable_{};
  SaveEvent drained_{};
};

}  // namespace ckpt
