#include "writers/drain_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/exceptions_to_result.hpp"
#include "writers/drain.hpp"

namespace ckpt {
namespace {

constexpr unsigned kCopyStep = 1;
constexpr unsigned kLastStep = 2;

/// Whether the nodes together have copied every file: see drain_part. The drain's leader lists every file, even if its
/// node no longer has it.
Result<> none_lacking(const std::vector<std::string>& copied) {
  std::size_t files = 0;
  for (const std::string& part : copied) files = std::max(files, part.size());
  for (std::size_t i = 0; i < files; ++i) {
    const bool found = std::any_of(copied.begin(), copied.end(),
                                   [&](const std::string& part) { return i < part.size() && part[i] == '1'; });
    if (!found) return fail(Errc::incomplete, fmt::format("no node has file {} of {}", i, files));
  }
  return {};
}

/// A leader's part of a drain, on the drainer's thread: see drain_part.
Result<std::string> copy_part(Io& io, BufferPool& pool, const SaveJob& save, const DrainOptions& options,
                              const std::atomic<bool>& stop) {
  CKPT_TRY(std::string copied, drain_part(io, pool, save.step, save.id(), options, stop));
  if (save.drain_job) copied.resize(save.drain_job->file_count(), '0');
  return copied;
}

}  // namespace

bool DrainSteps::takes_part(const SaveJob& save) const {
  return save.drain_step == kCopyStep ? nodes_.leads(comm_.rank()) : comm_.rank() == save.drain_leader;
}

void DrainSteps::start(const std::shared_ptr<SaveJob>& save) const {
  save->begin_drain_step();
  if (!takes_part(*save)) return;
  const unsigned step = save->drain_step;
  drainer_->add_step(
      [save, step](Io& io, BufferPool& pool, const DrainOptions& options, const std::atomic<bool>& stop) {
        const auto start = std::chrono::steady_clock::now();
        auto done = exceptions_to_result([&]() -> Result<std::string> {
          if (step == kCopyStep) return copy_part(io, pool, *save, options, stop);
          if (step == kLastStep) return save->drain_job->publish(io);
          CKPT_TRY(save->drain_job, DrainInSteps::begin(io, save->step, save->id(), options));
          return std::string();
        });
        if (step == kLastStep) save->drain_job.reset();
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        save->finish_draining(std::move(done), save->times().drain_s + seconds);
      });
}

Result<bool> DrainSteps::next(const std::shared_ptr<SaveJob>& save) const {
  if (save->drain_step == kLastStep) {
    if (drainer_ != nullptr) drainer_->add_retire();
    return false;
  }
  if (save->drain_step == kCopyStep) {
    std::string copied;
    if (nodes_.leads(comm_.rank())) {
      CKPT_TRY(copied, save->draining());
    }
    CKPT_TRY(const std::vector<std::string> all, comm_.gather(copied, comm_.now() + patience_));
    CKPT_CHECK(agree(comm_, comm_.now() + patience_, none_lacking(all)));
  }
  ++save->drain_step;
  start(save);
  return true;
}

void DrainSteps::drop(const std::shared_ptr<SaveJob>& save) const {
  if (drainer_ == nullptr) return;
  drainer_->add_step(
      [save](Io&, BufferPool&, const DrainOptions&, const std::atomic<bool>&) { save->drain_job.reset(); });
}

}  // namespace ckpt
