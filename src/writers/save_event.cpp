#include "writers/save_event.hpp"

#include <utility>

#include "engine/io/exceptions_to_result.hpp"

namespace ckpt {
namespace {

/// Exceptions of a trainer's callback end here: the thread is ours.
void call(const SaveEvent::Callback& callback, const Result<SaveOutcome>& outcome) {
  static_cast<void>(exceptions_to_result([&]() -> Result<> {
    callback(outcome);
    return {};
  }));
}

}  // namespace

bool SaveEvent::known() const {
  const std::lock_guard held(mutex_);
  return outcome_.has_value();
}

Result<SaveOutcome> SaveEvent::outcome() const {
  const std::lock_guard held(mutex_);
  if (!outcome_) return fail(Errc::locked, "not yet known");
  return *outcome_;
}

Result<SaveOutcome> SaveEvent::take_outcome() const {
  if (known()) *reported_ = true;
  return outcome();
}

void SaveEvent::on_known(Callback callback) {
  {
    const std::lock_guard held(mutex_);
    if (!outcome_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  *reported_ = true;
  call(callback, *outcome_);  // constant from here on
}

bool SaveEvent::wait_for(std::chrono::milliseconds time) const {
  std::unique_lock held(mutex_);
  return changed_.wait_for(held, time, [this] { return outcome_.has_value(); });
}

/// Under the mutex. Returns the callbacks, to be called without it.
std::vector<SaveEvent::Callback> SaveEvent::keep(const Result<SaveOutcome>& outcome) {
  if (outcome_) return {};
  outcome_ = outcome;
  return std::exchange(callbacks_, {});
}

void SaveEvent::call_all(const std::vector<Callback>& callbacks) {
  changed_.notify_all();
  if (!callbacks.empty()) *reported_ = true;
  for (const Callback& callback : callbacks) call(callback, *outcome_);
}

void SaveEvent::complete(const Result<SaveOutcome>& outcome) {
  std::unique_lock held(mutex_);
  const auto callbacks = keep(outcome);
  held.unlock();
  call_all(callbacks);
}

void SaveEvent::complete_both(SaveEvent& first, SaveEvent& second, const Result<SaveOutcome>& outcome) {
  std::vector<Callback> firsts;
  std::vector<Callback> seconds;
  {
    const std::scoped_lock held(first.mutex_, second.mutex_);
    firsts = first.keep(outcome);
    seconds = second.keep(outcome);
  }
  first.call_all(firsts);
  second.call_all(seconds);
}

}  // namespace ckpt
