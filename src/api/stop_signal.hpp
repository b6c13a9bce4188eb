#pragma once

#include <signal.h>

namespace ckpt {

/// SIGTERM and SIGUSR1 as one flag, while an object of this lives; the handlers before are then restored. At most one
/// object at a time does so: further ones share the flag.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;

 private:
  bool owns_ = false;
  struct sigaction term_ {};
  struct sigaction user_ {};
};

}  // namespace ckpt
