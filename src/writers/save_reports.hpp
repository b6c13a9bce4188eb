#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "format/result.hpp"
#include "writers/save_event.hpp"
#include "writers/unreported_failures.hpp"

namespace ckpt {

/// Reports of saves and drains to the user. Single-threaded.
class SaveReports {
 public:
  using Log = std::function<void(const std::string& text)>;
  /// `log_failure`: for each failed save and drain; empty: `log` is called.
  SaveReports(Log log, Log log_failure) : log_(std::move(log)), log_failure_(std::move(log_failure)) {}

  void log(const std::string& text) const {
    if (log_) log_(text);
  }
  /// Reports a failed save even if the trainer never queries it. Nothing if `event` succeeded.
  void report_failure(const SaveEvent& event, const std::string& what);
  /// The worst failure that was not reported yet: see Untold.
  std::optional<Error> worst_unreported() { return unreported_.worst(); }

 private:
  const Log log_;
  const Log log_failure_;
  UnreportedFailures unreported_{};
};

}  // namespace ckpt
