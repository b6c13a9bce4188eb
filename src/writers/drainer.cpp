#include "writers/drainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/io/exceptions_to_result.hpp"
#include "engine/run/run.hpp"
#include "engine/store/run_directory.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kBuffers = 4;  // one is read while one is hashed and two are written

}  // namespace

Result<std::unique_ptr<Drainer>> Drainer::open(Io& io, DrainOptions options) {
  std::unique_ptr<Drainer> drainer(new Drainer(std::move(options)));
  CKPT_TRY(drainer->pool_, BufferPool::open({.buffer_bytes = kRunBufferBytes, .buffer_count = kBuffers}));
  CKPT_TRY(const std::uint64_t next, next_generation(io, drainer->options_.run_directory));
  drainer->least_generation_ = next;
  CKPT_TRY(auto own, io.new_instance());
  drainer->thread_ = std::make_unique<Background>(std::move(own));
  return drainer;
}

void Drainer::finish() {
  stop_.store(true);
  thread_.reset();
}

void Drainer::add(std::string name, std::function<void(Result<std::string> name, double seconds)> done) {
  thread_->add([this, name = std::move(name), done = std::move(done)](Io& io) {
    const auto start = std::chrono::steady_clock::now();
    auto drained = exceptions_to_result([&] { return drain_one(io, name); });
    const bool well = drained.has_value();
    done(std::move(drained), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (well) retire(io);
  });
}

void Drainer::add_step(Step step) {
  thread_->add([this, step = std::move(step)](Io& io) { step(io, *pool_, options_, stop_); });
}

void Drainer::add_retire() {
  thread_->add([this](Io& io) {
    auto next = next_generation(io, options_.run_directory);
    if (next) least_generation_ = std::max(least_generation_.load(), *next);
    retire(io);
  });
}

Result<std::string> Drainer::drain_one(Io& io, const std::string& name) {
  if (stop_.load()) return fail(Errc::interrupted, name + ": the run was closed");
  CKPT_TRY(std::string drained, drain(io, *pool_, name, options_, stop_));
  if (const auto named = CheckpointName::parse(drained)) {
    least_generation_ = std::max(least_generation_.load(), named->generation + 1);
  }
  return drained;
}

void Drainer::retire(Io& io) {
  const auto retired = exceptions_to_result([&] { return retire_drained(io, options_); });
  if (!retired) {
    note(fmt::format("{}: old copies were not removed: {}", options_.local_directory, retired.error().message));
    return;
  }
  for (const Retired::Kept& kept : retired->kept) {
    if (!kept_.insert(kept.name).second) continue;
    note(fmt::format("{}: {} stays beside the newest {}: {}", options_.local_directory, kept.name, options_.keep,
                     kept.because));
  }
  for (const std::string& name : retired->undrained) {
    note(fmt::format("{}: removed {}: it is not in {}, which has a newer one", options_.local_directory, name,
                     options_.run_directory));
  }
}

void Drainer::note(std::string text) {
  const std::lock_guard held(mutex_);
  notes_.push_back(std::move(text));
}

std::vector<std::string> Drainer::take_notes() {
  const std::lock_guard held(mutex_);
  return std::exchange(notes_, {});
}

}  // namespace ckpt
