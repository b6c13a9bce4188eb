#include "engine/comm/agree_after.hpp"

#include <atomic>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/comm/heartbeat.hpp"
#include "engine/io/exceptions_to_result.hpp"

namespace ckpt {
namespace {

constexpr unsigned kEagerTurns = 2000;  // most work is over by then
constexpr auto kBeatNap = std::chrono::milliseconds(1);

}  // namespace

Result<> agree_after(Comm& comm, std::chrono::milliseconds patience, const std::function<Result<>()>& work) {
  if (comm.ranks() == 1) return work ? exceptions_to_result(work) : Result<>();
  Result<> mine;
  std::atomic<bool> done{!work};
  const auto carry_out = [&] {
    mine = exceptions_to_result(work);
    done.store(true);
  };
  std::optional<std::jthread> worker;
  try {
    if (work) worker.emplace(carry_out);
  } catch (const std::system_error&) {
    carry_out();  // no more threads can be started
  }
  Heartbeat heartbeat(comm, patience);
  Result<bool> over = false;
  for (unsigned turn = 0;; ++turn) {
    const bool ended = done.load();
    over = heartbeat.beat(ended && !mine ? static_cast<int>(mine.error().code) : 0, ended);
    if (!over || *over) break;
    if (turn < kEagerTurns) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kBeatNap);
    }
  }
  worker.reset();
  if (!over) return mine ? fail(std::move(over).error()) : std::move(mine);
  if (!heartbeat.peer_failed()) return mine;
  return agree(comm, comm.now() + patience, std::move(mine));
}

}  // namespace ckpt
