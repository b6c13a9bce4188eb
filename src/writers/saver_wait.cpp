// How the saver waits for its saves, with the other ranks.
#include <algorithm>
#include <utility>

#include "writers/saver.hpp"

namespace ckpt {
namespace {

constexpr const char* kNotDrained = "wait: not drained within the timeout";

}  // namespace

Result<> Saver::wait(const std::shared_ptr<PendingSave>& save, std::chrono::milliseconds timeout) {
  return rounds_.wait(save->durable(), timeout, "wait: not durable within the timeout", true);
}

Result<> Saver::wait_drained(const std::shared_ptr<PendingSave>& save, std::chrono::milliseconds timeout) {
  return rounds_.wait(save->drained(), timeout, kNotDrained, true);
}

Result<> Saver::wait_all(std::chrono::milliseconds timeout) {
  const Deadline until = std::chrono::steady_clock::now() + timeout;
  // Before anything of them ends: the list drops a drain that has failed, which still counts.
  const auto drains = drains_->draining();
  const auto saves = commits_->in_flight();
  Result<> worst = finish_round();
  const auto await = [&](const SaveEvent& event) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    auto ended =
        rounds_.wait(event, std::max(left, std::chrono::milliseconds(0)), "wait: not finished within the timeout");
    if (!ended && worst) worst = std::move(ended);
  };
  for (const auto& save : saves) await(save->durable());
  for (const auto& save : drains) await(save->drained());
  for (const auto& save : saves) await(save->drained());
  return worst;
}

Result<> Saver::finish(std::chrono::milliseconds timeout) {
  Result<> mine = wait_all(timeout);
  if (auto worst = reports_.worst_unreported()) {
    worst->code = worst->verdict.value_or(worst->code);  // the outcome of that save on all ranks
    mine = fail(std::move(*worst));
  }
  return agree(comm_, deadline(), std::move(mine));
}

Result<std::vector<std::string>> Saver::drain_left(std::chrono::milliseconds timeout) {
  return drains_->drain_left(
      [this](const auto& task) { return committer_->run(task); },
      [&](const PendingSave& save) { return rounds_.wait(save.drained(), timeout, kNotDrained, true); });
}

}  // namespace ckpt
