#include "engine/comm/heartbeat.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace ckpt {

Result<bool> Heartbeat::beat(int code, bool done, std::chrono::milliseconds idle) {
  if (comm_.ranks() == 1) return done;
  if (!pending_.active()) {
    words_[0] = static_cast<std::uint64_t>(code);
    words_[1] = done ? 0 : 1;
    // The least of all is the maximum of the complements, to which a rank that is done adds nothing.
    constexpr std::int64_t kMostIdle = std::numeric_limits<std::uint32_t>::max();
    words_[2] = done ? 0 : static_cast<std::uint64_t>(kMostIdle - std::clamp<std::int64_t>(idle.count(), 0, kMostIdle));
    CKPT_TRY(pending_, comm_.start_max(words_));
    started_ = comm_.now();
  }
  CKPT_TRY(const bool arrived, pending_.test());
  if (!arrived) {
    if (comm_.now() - started_ <= patience_) return false;
    pending_ = {};  // abandoned: no more collectives are started
    return fail(Errc::peer_failed, fmt::format("a rank has not answered for {} ms", patience_.count()));
  }
  pending_ = {};
  worst_ = std::max(worst_, words_[0]);
  least_idle_ = std::numeric_limits<std::uint32_t>::max() - static_cast<std::uint32_t>(words_[2]);
  return words_[1] == 0;
}

}  // namespace ckpt
