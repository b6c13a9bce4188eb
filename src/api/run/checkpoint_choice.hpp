#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/run/checkpoint.hpp"
#include "api/run/run_series.hpp"
#include "engine/comm/comm.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Which checkpoint of a run one load takes, on all ranks: the newest that is complete on all of them and not
/// superseded, or the newest save of one step. Rank 0 lists the run, once; each `next` opens the next one of the list.
class CheckpointChoice {
 public:
  struct Options {
    std::string run_directory;
    std::string local_directory{};        ///< with complete checkpoints; may be empty
    bool names_paths = false;             ///< messages name paths: a name may have two places
    std::optional<std::uint64_t> step{};  ///< the newest save of this step, superseded or not, and no other
    std::chrono::milliseconds patience{60'000};
    std::function<void(const std::string&)> log{};
  };
  CheckpointChoice(Io& io, Comm& comm, Options options) : io_(io), comm_(comm), options_(std::move(options)) {}

  /// Lists the checkpoints that may be resumed from. `mine`: the result of this rank's own preparations. Collective.
  /// errors  those of listing, on all ranks; io: the run directory no longer exists; usage: the ranks want different steps
  Result<> list(const Result<>& mine);
  /// The run as it was listed. Rank 0.
  const RunSeries& listed() const { return listed_; }
  /// Opens the first of the remaining ones that is complete on all ranks. Collective.
  ///
  /// skipped  gets why newer ones, and nearer copies, cannot be used
  /// errors   not_found: there is no checkpoint; corrupt: none can be used; newer: of a later release
  Result<std::unique_ptr<Checkpoint>> next(std::vector<std::string>& skipped);
  /// The one that `next` returned cannot be read; all ranks know why.
  /// errors  `why`, if an older checkpoint would not do either
  Result<> skip(const std::string& path, const Error& why, std::vector<std::string>& skipped) const;

 private:
  Deadline deadline() const { return comm_.now() + options_.patience; }
  Result<> agree_on_step();
  Result<> agree_on_id(const Checkpoint& checkpoint);
  void add_candidates();
  std::string wanted() const;
  void note_skipped(const std::string& path, const Error& why, std::vector<std::string>& skipped) const;

  Io& io_;
  Comm& comm_;
  const Options options_;
  RunSeries listed_{};
  std::vector<std::string> candidates_{};  // rank 0: paths, newest first; of several copies the nearest first
};

}  // namespace ckpt
