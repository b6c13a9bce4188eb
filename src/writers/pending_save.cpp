#include "writers/pending_save.hpp"

#include <utility>

#include "engine/caught.hpp"

namespace ckpt {
namespace {

/// What a trainer's callback throws ends there: the thread is ours.
void call(const PendingSave::Callback& callback, const Result<SaveOutcome>& outcome) {
  static_cast<void>(caught([&]() -> Result<> {
    callback(outcome);
    return {};
  }));
}

}  // namespace

bool PendingSave::resolved() const {
  const std::lock_guard held(mutex_);
  return outcome_.has_value();
}

Result<SaveOutcome> PendingSave::outcome() const {
  const std::lock_guard held(mutex_);
  if (!outcome_) return fail(Errc::locked, "save: not yet durable");
  return *outcome_;
}

SaveTimes PendingSave::times() const {
  const std::lock_guard held(mutex_);
  return times_;
}

void PendingSave::on_resolved(Callback callback) {
  {
    const std::lock_guard held(mutex_);
    if (!outcome_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  call(callback, *outcome_);  // it does not change any more
}

bool PendingSave::wait_for(std::chrono::milliseconds time) const {
  std::unique_lock held(mutex_);
  return changed_.wait_for(held, time, [this] { return outcome_.has_value(); });
}

void PendingSave::resolve(Result<SaveOutcome> outcome) {
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

void PendingSave::finish_writing(Result<std::vector<Hash128>> leaves, double seconds) {
  {
    const std::lock_guard held(mutex_);
    if (!leaves_) leaves_ = std::move(leaves);
    times_.write_s = seconds;
  }
  changed_.notify_all();
}

void PendingSave::finish_publishing(Result<std::string> name, double seconds) {
  {
    const std::lock_guard held(mutex_);
    published_ = std::move(name);
    times_.commit_s = seconds;
  }
  changed_.notify_all();
}

bool PendingSave::written() const {
  const std::lock_guard held(mutex_);
  return leaves_.has_value();
}

bool PendingSave::published() const {
  const std::lock_guard held(mutex_);
  return published_.has_value();
}

}  // namespace ckpt
