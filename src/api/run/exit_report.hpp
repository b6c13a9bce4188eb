#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "writers/pending_save.hpp"

namespace ckpt {

/// The saves of an open run. If the process exits (`exit`, or the end of main) while the run is open, those that
/// failed unnoticed or may be lost are named on stderr.
class ExitReport {
 public:
  /// reports  false where another process of the job prints
  ExitReport(std::string run_directory, bool reports);
  ~ExitReport();
  ExitReport(const ExitReport&) = delete;
  ExitReport& operator=(const ExitReport&) = delete;

  void add(std::uint64_t step, std::shared_ptr<const PendingSave> save);
  /// One sentence, without the line's end; empty where all is well, and in a forked child, whose end says nothing about
  /// its parent's saves.
  std::string text() const;

 private:
  struct Save {
    std::uint64_t step = 0;
    SaveEvent::ReportedFlag reported;
    std::shared_ptr<const PendingSave> save;  // null after a failure: a run that continues may have many
    std::string failure{};
    bool is_settled() const;
    void shrink();
  };

  const std::string run_directory_;
  const bool reports_;
  const pid_t process_;
  mutable std::mutex mutex_;
  std::vector<Save> saves_{};  // guarded by mutex_
};

}  // namespace ckpt
