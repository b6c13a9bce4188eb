// How the saver waits for its saves, with the other ranks.
#include <algorithm>
#include <utility>

#include "writers/saver.hpp"

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kWaitNap = std::chrono::milliseconds(1);  // between rounds that wait for the disk

}  // namespace

Result<> Saver::wait(const std::shared_ptr<PendingSave>& save, std::chrono::milliseconds timeout) {
  return wait_event(save->durable(), timeout, "wait: not durable within the timeout", true);
}

Result<> Saver::wait_drained(const std::shared_ptr<PendingSave>& save, std::chrono::milliseconds timeout) {
  return wait_event(save->drained(), timeout, "wait: not in the run directory within the timeout", true);
}

Result<> Saver::wait_event(const SaveEvent& event, std::chrono::milliseconds timeout, const char* late, bool tells) {
  const Deadline until = Clock::now() + timeout;
  const auto ended = [&]() -> Result<> {
    auto outcome = tells ? event.tell() : event.outcome();
    return outcome ? Result<>() : fail(std::move(outcome).error());
  };
  if (alone()) {
    const bool over = event.wait_for(timeout);
    forget_resolved();
    return over ? ended() : fail(Errc::locked, late);
  }
  bool timed_out = false;
  auto outcome = [&]() -> Result<> {
    CKPT_CHECK(settle_round());
    while (!event.known() && !timed_out) {
      CKPT_CHECK(start_round({}, Clock::now() >= until));
      CKPT_TRY(const Vote empty, finish_round(timed_out));
      static_cast<void>(empty);
      if (!event.known() && !timed_out) event.wait_for(kWaitNap);
    }
    return {};
  }();
  if (!outcome) {
    Error error = lose_peers(std::move(outcome).error());
    // Rank 0's drains go on alone.
    if (comm_.is_lost() && comm_.is_root()) {
      event.wait_for(std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()));
    }
    if (!event.known()) return fail(std::move(error));
  }
  return event.known() ? ended() : fail(Errc::locked, late);
}

Result<> Saver::wait_all(std::chrono::milliseconds timeout) {
  const Deadline until = Clock::now() + timeout;
  Result<> worst = settle_round();
  const auto await = [&](const SaveEvent& event) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    auto ended =
        wait_event(event, std::max(left, std::chrono::milliseconds(0)), "wait: not finished within the timeout");
    if (!ended && worst) worst = std::move(ended);
  };
  const auto saves = in_flight_;
  for (const auto& save : saves) await(save->durable());
  const auto drains = draining_;
  for (const auto& save : drains) await(save->drained());
  return worst;
}

Result<> Saver::finish(std::chrono::milliseconds timeout) {
  Result<> mine = wait_all(timeout);
  if (auto worst = untold_.worst()) {
    worst->code = worst->verdict.value_or(worst->code);  // the outcome of that save on all ranks
    mine = fail(std::move(*worst));
  }
  return agree(comm_, deadline(), std::move(mine));
}

}  // namespace ckpt
