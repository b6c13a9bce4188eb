#pragma once

namespace ckpt {

/// SIGTERM and SIGUSR1 as one flag, while an object of this type exists; the last one restores the earlier handlers. In
/// a forked child (a data loader's worker) these signals have their earlier effect.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace ckpt
