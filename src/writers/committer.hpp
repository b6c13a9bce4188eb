#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/publish/publish.hpp"
#include "format/result.hpp"
#include "writers/background.hpp"
#include "writers/commit_disk.hpp"
#include "writers/flusher.hpp"
#include "writers/save_job.hpp"

namespace ckpt {

/// The disk of a commit. A leader has a thread that alone makes, publishes and removes partials: only its Io may remove
/// one that it has made. Other ranks can only look. Knows no other rank.
class Committer final : public CommitDisk {
 public:
  struct Options {
    std::string home;                                   ///< the directory in which saves are committed
    CheckRemovable check_removable{};                   ///< of checkpoints there
    std::function<std::uint64_t()> least_generation{};  ///< another tier of the run has those below; none: 0
    /// Called in the committer's thread after each publication.
    std::function<void(const std::shared_ptr<SaveJob>&, const Result<std::string>& name)> published{};
  };
  /// `io`: of leaders; becomes the thread's. `flusher`: writes the files of the partials; outlives this.
  Committer(std::unique_ptr<Io> io, Flusher& flusher, Options options)
      : options_(std::move(options)),
        flusher_(flusher),
        thread_(io ? std::make_unique<Background>(std::move(io)) : nullptr) {}

  /// Makes the partial of a save and waits for it. Leaders.
  Result<> begin(SaveJob& save);
  /// Removes the partial of a save to which nothing was staged.
  void drop_unused(const std::shared_ptr<SaveJob>& save);
  /// Runs a task in the committer's thread and waits for it. Leaders.
  Result<> run(const std::function<Result<>(Io&)>& task) { return thread_->run(task); }
  /// Waits for everything, and ends. The flusher has finished.
  void finish() { thread_.reset(); }

  void publish(const std::shared_ptr<SaveJob>& save, std::vector<std::string> records) override;
  void wait() override;
  void drop(const std::shared_ptr<SaveJob>& save) override;
  void take_back(const std::shared_ptr<SaveJob>& save) override;
  Result<std::optional<std::string>> find(const SaveJob& save) override;

 private:
  Result<std::string> publish_now(Io& io, SaveJob& save, const std::vector<std::string>& records) const;

  const Options options_;
  Flusher& flusher_;
  std::unique_ptr<Background> thread_;  // last: its tasks use all of the above
};

}  // namespace ckpt
