#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "format/result.hpp"

namespace ckpt {

/// A save that has reached one of its places.
struct SaveOutcome {
  std::string name;  ///< "step-000001000.g7"
  std::string id;    ///< 32 digits
};

/// An event of a save that happens once, with success or failure. Thread-safe.
class SaveEvent {
 public:
  using Callback = std::function<void(const Result<SaveOutcome>&)>;
  using ReportedFlag = std::shared_ptr<std::atomic<bool>>;

  bool known() const;
  /// `locked` while it is not known.
  Result<SaveOutcome> outcome() const;
  /// The same, and the caller has got the outcome: a failure need not be reported again when the run is closed.
  Result<SaveOutcome> take_outcome() const;
  /// True once the outcome has been reported, by `tell` or a callback. Held by others too, it outlives this.
  ReportedFlag reported_mark() const { return reported_; }
  /// Called once, with the outcome: at once if it is known, else by the thread that learns it. Exceptions are
  /// dropped.
  void on_known(Callback callback);
  /// True once known.
  bool wait_for(std::chrono::milliseconds time) const;
  /// The first call counts.
  void complete(const Result<SaveOutcome>& outcome);
  /// The same for two events at once: no observer sees one without the other. `first`'s callbacks come first.
  static void complete_both(SaveEvent& first, SaveEvent& second, const Result<SaveOutcome>& outcome);

 private:
  std::vector<Callback> keep(const Result<SaveOutcome>& outcome);
  void call_all(const std::vector<Callback>& callbacks);

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<Result<SaveOutcome>> outcome_{};  // guarded by mutex_
  std::vector<Callback> callbacks_{};             // guarded by mutex_
  const ReportedFlag reported_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace ckpt
