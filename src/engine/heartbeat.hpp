#pragma once

#include <chrono>
#include <cstdint>

#include "engine/comm.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Keeps the ranks' view of each other fresh while each works for as long as it takes: one small all-reduce after
/// another, {worst code, still working}. Every rank takes part until all are done, so a failure anywhere is known to
/// all within a beat, and one that is merely slow is not taken for lost. No other collective meanwhile; one thread.
class Heartbeat {
 public:
  /// `patience`: a rank that takes longer to join a beat is lost.
  Heartbeat(Comm& comm, std::chrono::milliseconds patience) : comm_(comm), patience_(patience) {}

  /// Advances; true once every rank has said that it is done. `code` is 0 while nothing failed here.
  Result<bool> beat(int code, bool done);
  bool peer_failed() const { return worst_ != 0; }

 private:
  Comm& comm_;
  const std::chrono::milliseconds patience_;
  Comm::Pending pending_{};
  std::uint64_t words_[2] = {0, 0};
  std::uint64_t worst_ = 0;
  std::chrono::steady_clock::time_point started_{};
};

}  // namespace ckpt
