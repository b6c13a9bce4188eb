#pragma once

#include <cstdint>
#include <memory>
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
#include "writers/pending_save.hpp"
#include "writers/save_files.hpp"

namespace ckpt {

/// One rank's side of a save, from begin to its last place: what its threads hand to each other. The fields belong to
/// the thread that is named; the methods are thread-safe.
class SaveJob : public PendingSave {
 public:
  enum class Phase : std::uint8_t { writing, publishing, over };
  explicit SaveJob(const Hash128& id) : PendingSave(id) {}

  // Constant while the background works.
  std::uint64_t step = 0;
  bool tiered = false;  ///< will be drained
  std::string root{};   ///< the partial
  universal::Manifest manifest{};
  std::unique_ptr<SaveFiles> files{};
  std::unique_ptr<Plan> plan{};
  std::unique_ptr<Staging> staging{};
  std::vector<universal::FileRecord> records{};
  Phase phase = Phase::writing;                ///< of the ranks' agreement: the trainer's thread only
  std::unique_ptr<Publication> publication{};  ///< leaders: the committer's thread only

  // Of several nodes:
  std::string sealed{};                       ///< the files that their leaders publish: see sealed_text
  unsigned drain_step = 0;                    ///< the trainer's thread only
  int drain_leader = 0;                       ///< the rank that begins and ends the drain
  std::unique_ptr<DrainInSteps> drain_job{};  ///< that rank: the drainer's thread only

  void planned(double seconds, std::uint64_t bytes);
  void staged(double seconds);

  void finish_writing(Result<std::vector<Hash128>> leaves, double seconds);
  bool written() const;  ///< this rank's part, well or not
  /// Once written: how.
  Result<> writing() const;
  /// Once written well: what rank 0 needs to know of this rank's files (save_record.hpp).
  std::string record() const;

  void finish_publishing(Result<std::string> name, double seconds);
  bool published() const;  ///< leaders: the commit has ended, well or not
  /// Once published: the name.
  Result<std::string> publishing() const;

  /// The first call counts.
  void finish_draining(Result<std::string> name, double seconds);
  bool drain_ended() const;  ///< well or not
  /// Once the drain, or a step of it, has ended: how.
  Result<std::string> draining() const;
  /// Several nodes: the next step of the drain has begun.
  void begin_drain_step();
  /// No other process must agree on the drain: `drained` is known as soon as it has ended.
  void own_drain();

  /// Settles `durable`; `drained` too, for saves that will not be durable, or have only one place.
  void resolve(const Result<SaveOutcome>& outcome);
  void complete_drain(Result<std::string> name);

 private:
  std::optional<Result<std::vector<Hash128>>> leaves_{};  // guarded by mutex_
  std::optional<Result<std::string>> published_{};        // guarded by mutex_
  std::optional<Result<std::string>> drain_{};            // guarded by mutex_
  bool own_drain_ = false;                                // guarded by mutex_
};

}  // namespace ckpt
