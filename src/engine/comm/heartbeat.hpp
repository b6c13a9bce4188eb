#pragma once

#include <chrono>
#include <cstdint>

#include "engine/comm/comm.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Keeps ranks informed about each other during long work: one small all-reduce after another, {worst
/// code, still working}. Every rank takes part until all are done, so a failure anywhere is known to all
/// within a beat, and a slow rank is not mistaken for a lost one. No other collective meanwhile; one
/// thread. Ranks that wait for others also report since when: if all working ranks wait, none will ever
/// finish.
class Heartbeat {
 public:
  /// `patience`: a rank that takes longer to join a beat is lost.
  Heartbeat(Comm& comm, std::chrono::milliseconds patience) : comm_(comm), patience_(patience) {}

  /// Advances; true once every rank has said that it is done. `code` is 0 while nothing failed here; `idle`: since when
  /// this rank has waited for others, 0 while it works by itself.
  Result<bool> beat(int code, bool done, std::chrono::milliseconds idle = std::chrono::milliseconds(0));
  bool peer_failed() const { return worst_ != 0; }
  Errc verdict() const { return static_cast<Errc>(worst_); }  ///< the worst code that any rank failed with
  /// The minimum over the ranks that were not done at the last beat.
  std::chrono::milliseconds least_idle() const { return std::chrono::milliseconds(least_idle_); }

 private:
  Comm& comm_;
  const std::chrono::milliseconds patience_;
  Comm::Pending pending_{};
  std::uint64_t words_[3] = {0, 0, 0};
  std::uint64_t worst_ = 0;
  std::uint32_t least_idle_ = 0;  // ms
  Deadline started_{};
};

}  // namespace ckpt
