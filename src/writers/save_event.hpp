#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "format/result.hpp"

namespace ckpt {

/// A save that has reached a place where it stays.
struct SaveOutcome {
  std::string name;  ///< "step-000001000.g7"
  std::string id;    ///< 32 digits
};

/// Something that a save comes to, once, well or not. Thread-safe.
class SaveEvent {
 public:
  using Callback = std::function<void(const Result<SaveOutcome>&)>;

  bool known() const;
  /// `locked` while it is not known.
  Result<SaveOutcome> outcome() const;
  /// Called once, with the outcome: at once where it is known, else by the thread that learns it. What it throws is
  /// lost.
  void on_known(Callback callback);
  /// True once known.
  bool wait_for(std::chrono::milliseconds time) const;
  /// The first call counts.
  void settle(const Result<SaveOutcome>& outcome);
  /// The same for two events at once: nobody sees the one without the other. `first`'s callbacks come first.
  static void settle_both(SaveEvent& first, SaveEvent& second, const Result<SaveOutcome>& outcome);

 private:
  std::vector<Callback> keep(const Result<SaveOutcome>& outcome);
  void tell(const std::vector<Callback>& callbacks);

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<Result<SaveOutcome>> outcome_{};  // guarded by mutex_
  std::vector<Callback> callbacks_{};             // guarded by mutex_
};

}  // namespace ckpt
