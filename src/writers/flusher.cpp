#include "writers/flusher.hpp"

#include <atomic>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/comm/heartbeat.hpp"
#include "engine/io/exceptions_to_result.hpp"
#include "engine/run/run.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/run_directory.hpp"

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kStageNap = std::chrono::milliseconds(1);  // between beats that wait for the disk

double seconds_of(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

void Flusher::stage(const std::shared_ptr<SaveJob>& save, bool flush_beside) {
  const auto start = Clock::now();
  const auto start_flush = [&] { thread_->add([this, save](Io& io) { flush(save, io); }); };
  if (flush_beside) start_flush();
  static_cast<void>(save->staging->fill(options_.copy_threads, flush_beside));  // its failure is the run's
  save->staged(seconds_of(start));
  if (!flush_beside) start_flush();
}

Result<> Flusher::stage_with_others(Comm& comm, std::chrono::milliseconds patience,
                                    const std::shared_ptr<SaveJob>& save, bool flush_beside) {
  std::atomic<bool> staged{false};
  const auto all = [&] {
    stage(save, flush_beside);
    staged = true;
  };
  std::optional<std::jthread> stager;
  try {
    stager.emplace(all);
  } catch (const std::system_error&) {
    all();  // no more threads can be started
  }
  Heartbeat heartbeat(comm, patience);
  for (;;) {
    auto over = heartbeat.beat(0, staged);
    if (!over) save->staging->close();  // it will not be committed
    if (!over) return fail(std::move(over).error());
    if (*over) return {};
    std::this_thread::sleep_for(kStageNap);
  }
}

/// This rank's files: made, hashed and written as their leaves are staged, synced.
void Flusher::flush(const std::shared_ptr<SaveJob>& save, Io& io) {
  const auto start = Clock::now();
  auto leaves = exceptions_to_result([&]() -> Result<std::vector<Hash128>> {
    CKPT_TRY(const HeldRun held, hold_run(io, parent_path(save->root)));
    CKPT_CHECK(make_files(io, save->root, save->plan->targets()));
    const auto solo = Comm::solo();
    CKPT_TRY(RunReport report, ckpt::run(*save->plan, io, *solo,
                                         {.target_root = save->root,
                                          .workers = options_.write_threads,
                                          .pool = &pool_,
                                          .staging = save->staging.get()}));
    return std::move(report.leaves);
  });
  save->staging->close();
  save->finish_writing(std::move(leaves), seconds_of(start));
  if (options_.written) options_.written(save);
}

void Flusher::after(std::function<void()> task) {
  if (!thread_) return task();
  thread_->add([task = std::move(task)](Io&) { task(); });
}

}  // namespace ckpt
