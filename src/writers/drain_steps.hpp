#pragma once

#include <chrono>
#include <memory>

#include "engine/comm/comm.hpp"
#include "format/result.hpp"
#include "writers/drainer.hpp"
#include "writers/nodes.hpp"
#include "writers/save_job.hpp"

namespace ckpt {

/// A drain with several nodes, each of which has only the files of its ranks.
///
/// 0. The drain's leader begins the partial in the run directory: rank 0, or for an earlier job's checkpoint the lowest
///    leader that has it.
/// 1. Every leader copies the files that it has.
/// 2. The drain's leader publishes, if together they had all.
///
/// The ranks agree between the steps, in their rounds. The trainer's thread.
class DrainSteps {
 public:
  /// `drainer`: on leaders; null elsewhere
  DrainSteps(Comm& comm, std::chrono::milliseconds patience, Nodes nodes, Drainer* drainer)
      : comm_(comm), patience_(patience), nodes_(nodes), drainer_(drainer) {}

  /// Whether this rank has something to do in the current step; with one node, the drain's leader alone.
  bool takes_part(const SaveJob& save) const;
  /// Starts the current step, in the background.
  void start(const std::shared_ptr<SaveJob>& save) const;
  /// All ranks have done a step well: starts the next. False: it was the last. Collective.
  Result<bool> next(const std::shared_ptr<SaveJob>& save) const;
  /// Removes the partial in the run directory, on the thread that alone touches it.
  void drop(const std::shared_ptr<SaveJob>& save) const;

 private:
  Comm& comm_;
  std::chrono::milliseconds patience_;
  Nodes nodes_;
  Drainer* drainer_;
};

}  // namespace ckpt
