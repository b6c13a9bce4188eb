#include "writers/save_job.hpp"

#include <utility>

#include "writers/save_record.hpp"

namespace ckpt {

void SaveJob::planned(double seconds, std::uint64_t bytes) {
  const std::lock_guard held(mutex_);
  times_.plan_s = seconds;
  times_.bytes = bytes;
}

void SaveJob::staged(double seconds) {
  const std::lock_guard held(mutex_);
  times_.stage_s = seconds;
}

void SaveJob::finish_writing(Result<std::vector<Hash128>> leaves, double seconds) {
  const std::lock_guard held(mutex_);
  if (!leaves_) leaves_ = std::move(leaves);
  times_.write_s = seconds;
}

bool SaveJob::written() const {
  const std::lock_guard held(mutex_);
  return leaves_.has_value();
}

Result<> SaveJob::writing() const {
  const std::lock_guard held(mutex_);
  return *leaves_ ? Result<>() : fail(leaves_->error());
}

std::string SaveJob::record() const {
  const std::lock_guard held(mutex_);
  return to_text({.files = records, .leaves = leaves_->value(), .times = times_});
}

void SaveJob::finish_publishing(Result<std::string> name, double seconds) {
  const std::lock_guard held(mutex_);
  published_ = std::move(name);
  times_.commit_s = seconds;
}

bool SaveJob::published() const {
  const std::lock_guard held(mutex_);
  return published_.has_value();
}

Result<std::string> SaveJob::publishing() const {
  const std::lock_guard held(mutex_);
  return *published_;
}

void SaveJob::finish_draining(Result<std::string> name, double seconds) {
  bool completes = false;
  {
    const std::lock_guard held(mutex_);
    if (drain_) return;
    drain_ = name;
    times_.drain_s = seconds;
    completes = own_drain_;
  }
  if (completes) complete_drain(std::move(name));
}

bool SaveJob::drain_ended() const {
  const std::lock_guard held(mutex_);
  return drain_.has_value();
}

Result<std::string> SaveJob::draining() const {
  const std::lock_guard held(mutex_);
  return *drain_;
}

void SaveJob::begin_drain_step() {
  const std::lock_guard held(mutex_);
  drain_.reset();
}

void SaveJob::own_drain() {
  std::optional<Result<std::string>> done;
  {
    const std::lock_guard held(mutex_);
    own_drain_ = true;
    done = drain_;
  }
  if (done) complete_drain(std::move(*done));
}

void SaveJob::resolve(const Result<SaveOutcome>& outcome) {
  if (tiered && outcome) {
    durable().complete(outcome);
  } else {
    SaveEvent::complete_both(durable(), drained(), outcome);
  }
}

void SaveJob::complete_drain(Result<std::string> name) {
  if (name) {
    drained().complete(SaveOutcome{.name = *name, .id = id().hex()});
  } else {
    drained().complete(fail(std::move(name).error()));
  }
}

}  // namespace ckpt
