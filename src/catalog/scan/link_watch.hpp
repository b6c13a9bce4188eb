#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "catalog/scan/scan.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt::catalog {

/// Finds links and trackers next to checkpoints that were made after the plan: they protect their targets at any time.
/// One thread; `io` outlives it.
class LinkWatch {
 public:
  /// `runs`: all of the store, as paths in it.
  LinkWatch(Io& io, std::string store, std::vector<std::string> runs, ForeignNames names);

  /// Lists the runs again before it answers, unless that takes more than a millisecond and ended less time ago than it
  /// took: deletions never spend more time on it than on themselves.
  /// errors  not_done: an entry names the checkpoint, or may, as it cannot be read now
  Result<> check_unnamed(const Entry& entry);

 private:
  void check();

  Io& io_;
  const std::string store_;
  const std::vector<std::string> runs_;
  const OtherTools tools_;  // without detection: deletions recognise other tools' checkpoints, and find references
  std::vector<EntryPlace> named_{};  // ours that a tracker names
  std::vector<FoundLink> links_{};
  std::chrono::steady_clock::time_point looked_{};
  std::chrono::steady_clock::duration took_{};
};

}  // namespace ckpt::catalog
