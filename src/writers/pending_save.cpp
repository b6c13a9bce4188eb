#include "writers/pending_save.hpp"

#include <utility>

namespace ckpt {

SaveTimes PendingSave::times() const {
  const std::lock_guard held(mutex_);
  return times_;
}

/// Ends here for saves that will not be durable, or have only one place.
void PendingSave::resolve(const Result<SaveOutcome>& outcome) {
  if (tiered && outcome) {
    durable_.settle(outcome);
  } else {
    SaveEvent::settle_both(durable_, drained_, outcome);
  }
}

void PendingSave::finish_writing(Result<std::vector<Hash128>> leaves, double seconds) {
  const std::lock_guard held(mutex_);
  if (!leaves_) leaves_ = std::move(leaves);
  times_.write_s = seconds;
}

void PendingSave::finish_publishing(Result<std::string> name, double seconds) {
  const std::lock_guard held(mutex_);
  published_ = std::move(name);
  times_.commit_s = seconds;
}

void PendingSave::finish_draining(Result<std::string> name, double seconds) {
  bool tell = false;
  {
    const std::lock_guard held(mutex_);
    if (drain_) return;
    drain_ = name;
    times_.drain_s = seconds;
    tell = own_drain_;
  }
  if (tell) settle_drain(std::move(name));
}

void PendingSave::begin_drain_step() {
  const std::lock_guard held(mutex_);
  drain_.reset();
}

void PendingSave::own_drain() {
  std::optional<Result<std::string>> done;
  {
    const std::lock_guard held(mutex_);
    own_drain_ = true;
    done = drain_;
  }
  if (done) settle_drain(std::move(*done));
}

void PendingSave::settle_drain(Result<std::string> name) {
  if (name) {
    drained_.settle(SaveOutcome{.name = *name, .id = id_.hex()});
  } else {
    drained_.settle(fail(std::move(name).error()));
  }
}

bool PendingSave::written() const {
  const std::lock_guard held(mutex_);
  return leaves_.has_value();
}

bool PendingSave::published() const {
  const std::lock_guard held(mutex_);
  return published_.has_value();
}

bool PendingSave::drain_ended() const {
  const std::lock_guard held(mutex_);
  return drain_.has_value();
}

}  // namespace ckpt
