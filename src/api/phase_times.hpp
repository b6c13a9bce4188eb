#pragma once

#include <chrono>

namespace ckpt {

/// How long the phases of a conversion took, on rank 0.
struct PhaseTimes {
  double plan_s = 0;    ///< opening the source, laying out the target
  double copy_s = 0;    ///< reading, converting and writing
  double verify_s = 0;  ///< with --verify full
  double commit_s = 0;  ///< until the target is durable and visible
};

/// Measures one phase after another, from its construction on.
class PhaseClock {
 public:
  /// The time since the phase before it ended is this one's.
  void end(double PhaseTimes::*phase) {
    const auto now = std::chrono::steady_clock::now();
    times_.*phase += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }
  const PhaseTimes& times() const { return times_; }
  /// Since the construction.
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_ = start_;
  PhaseTimes times_{};
};

}  // namespace ckpt
