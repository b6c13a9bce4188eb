#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "format/result.hpp"
#include "writers/save_event.hpp"

namespace ckpt {

/// Failures of saves that were not reported yet, until the run is closed. Single-threaded; events may be queried from
/// any thread. Its size is bounded by the number of saves with live handles.
class UnreportedFailures {
 public:
  /// `error` names the save.
  void add(const SaveEvent& event, Error error);
  /// The worst unreported failure, by code; its message gives the number of further ones. Nothing if all were reported
  /// or none failed.
  std::optional<Error> worst();

 private:
  struct Failure {
    SaveEvent::ReportedFlag told;
    Error error;
  };
  /// No handle is left, so the outcome can no longer be queried.
  struct Forgotten {
    std::size_t count = 0;
    Error worst{};
  };
  void sort_out();

  std::vector<Failure> failures_{};
  Forgotten forgotten_{};
};

}  // namespace ckpt
