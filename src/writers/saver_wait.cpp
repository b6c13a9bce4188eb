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
  return wait_for(save->durable(), timeout, "save: wait: not durable within the time given");
}

Result<> Saver::wait_for(const SaveEvent& event, std::chrono::milliseconds timeout, const char* late) {
  const Deadline until = Clock::now() + timeout;
  const auto ended = [&]() -> Result<> {
    auto outcome = event.outcome();
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
  const auto await = [&](Result<> (Saver::*wait_one)(const std::shared_ptr<PendingSave>&, std::chrono::milliseconds),
                         const std::deque<std::shared_ptr<PendingSave>> saves) {
    for (const auto& save : saves) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
      auto ended = (this->*wait_one)(save, std::max(left, std::chrono::milliseconds(0)));
      if (!ended && worst) worst = std::move(ended);
    }
  };
  await(&Saver::wait, in_flight_);
  await(&Saver::wait_drained, draining_);
  return worst;
}

}  // namespace ckpt
