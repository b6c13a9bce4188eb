#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "format/result.hpp"
#include "writers/save_job.hpp"

namespace ckpt {

/// What the ranks' agreement on a commit (commits.hpp) needs of this rank's disk. Called by the trainer's thread.
class CommitDisk {
 public:
  virtual ~CommitDisk() = default;
  /// On leaders, in the background; ends with SaveJob::finish_publishing. `records` of all ranks; none if the save is
  /// sealed.
  virtual void publish(const std::shared_ptr<SaveJob>& save, std::vector<std::string> records) = 0;
  /// Waits until no publication is in progress.
  virtual void wait() = 0;
  /// Removes the partial of a save that will not be committed, once this rank has stopped writing to it. One that was
  /// committed, or is about to be, is gone by then: nothing happens.
  virtual void drop(const std::shared_ptr<SaveJob>& save) = 0;
  /// Several nodes, on leaders: removes this node's part of a checkpoint that another node could not publish.
  virtual void take_back(const std::shared_ptr<SaveJob>& save) = 0;
  /// The name of the save's checkpoint, if another process has committed it.
  virtual Result<std::optional<std::string>> find(const SaveJob& save) = 0;
};

}  // namespace ckpt
