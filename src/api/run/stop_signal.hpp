#pragma once

namespace ckpt {

/// SIGTERM and SIGUSR1 as one flag, while any object of this lives; with the last one the handlers before are restored.
/// A forked child (a data loader's worker) is ended by these signals as if nobody had caught them.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace ckpt
