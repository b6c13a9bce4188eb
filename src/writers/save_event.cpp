#include "writers/save_event.hpp"

#include <utility>

#include "engine/caught.hpp"

namespace ckpt {
namespace {

/// What a trainer's callback throws ends there: the thread is ours.
void call(const SaveEvent::Callback& callback, const Result<SaveOutcome>& outcome) {
  static_cast<void>(caught([&]() -> Result<> {
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
  if (!outcome_) return fail(Errc::locked, "save: not yet known");
  return *outcome_;
}

void SaveEvent::on_known(Callback callback) {
  {
    const std::lock_guard held(mutex_);
    if (!outcome_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  call(callback, *outcome_);  // it does not change any more
}

bool SaveEvent::wait_for(std::chrono::milliseconds time) const {
  std::unique_lock held(mutex_);
  return changed_.wait_for(held, time, [this] { return outcome_.has_value(); });
}

void SaveEvent::settle(Result<SaveOutcome> outcome) {
  std::vector<Callback> callbacks;
  {
    const std::lock_guard held(mutex_);
    if (outcome_) return;
    outcome_ = std::move(outcome);
    callbacks = std::move(callbacks_);
  }
  changed_.notify_all();
  for (const Callback& callback : callbacks) call(callback, *outcome_);
}

}  // namespace ckpt
