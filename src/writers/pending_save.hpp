#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan.hpp"
#include "engine/publish.hpp"
#include "engine/staging.hpp"
#include "format/hash.hpp"
#include "format/manifest.hpp"
#include "format/sums.hpp"
#include "writers/save_files.hpp"

namespace ckpt {

/// Where a save's time went on one rank, in seconds, and its bytes.
struct SaveTimes {
  double plan_s = 0;    ///< table and layout
  double stage_s = 0;   ///< copying to staging memory, and waiting for room there
  double write_s = 0;   ///< hashing, writing and syncing, in the background
  double commit_s = 0;  ///< rank 0: manifest, sync, rename
  std::uint64_t bytes = 0;
};

/// A save that is durable.
struct SaveOutcome {
  std::string name;  ///< "step-000001000.g7"
  std::string id;    ///< 32 digits
};

/// One save from commit() on, shared by the trainer's thread and the background. Thread-safe.
class PendingSave {
 public:
  using Callback = std::function<void(const Result<SaveOutcome>&)>;

  explicit PendingSave(const Hash128& id) : id_(id) {}

  const Hash128& id() const { return id_; }
  bool resolved() const;
  /// What became of it; `locked` while that is not known.
  Result<SaveOutcome> outcome() const;
  SaveTimes times() const;
  /// Called once, with the outcome: at once where it is known, else by the thread that learns it (several ranks: in a
  /// call of the trainer's; alone: the background). What it throws is lost.
  void on_resolved(Callback callback);
  /// True once resolved.
  bool wait_for(std::chrono::milliseconds time) const;

 private:
  friend class Saver;
  enum class Phase : std::uint8_t { writing, publishing, over };

  void resolve(Result<SaveOutcome> outcome);
  void finish_writing(Result<std::vector<Hash128>> leaves, double seconds);
  void finish_publishing(Result<std::string> name, double seconds);
  bool written() const;    ///< this rank's part, well or not
  bool published() const;  ///< rank 0: the commit has ended, well or not

  const Hash128 id_;
  // Constant while the background works.
  std::uint64_t step = 0;
  std::string root{};  ///< the partial
  universal::Manifest manifest{};
  std::shared_ptr<const SaveTable> table{};
  std::unique_ptr<SaveFiles> files{};
  std::unique_ptr<Plan> plan{};
  std::unique_ptr<Staging> staging{};
  std::vector<universal::FileRecord> records{};
  Phase phase = Phase::writing;                ///< of the ranks' agreement: the trainer's thread only
  std::unique_ptr<Publication> publication{};  ///< rank 0: the committer's thread only

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  SaveTimes times_{};                                     // guarded by mutex_
  std::optional<Result<std::vector<Hash128>>> leaves_{};  // guarded by mutex_
  std::optional<Result<std::string>> published_{};        // guarded by mutex_
  std::optional<Result<SaveOutcome>> outcome_{};          // guarded by mutex_
  std::vector<Callback> callbacks_{};                     // guarded by mutex_
};

}  // namespace ckpt
