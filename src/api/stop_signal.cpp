#include "api/stop_signal.hpp"

#include <atomic>

namespace ckpt {
namespace {

std::atomic<bool> installed{false};
// The one thing a handler may do.
std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int /*number*/) {
  flag.store(true);
}

}  // namespace

StopSignal::StopSignal() : owns_(!installed.exchange(true)) {
  if (!owns_) return;
  flag.store(false);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, &term_);
  ::sigaction(SIGUSR1, &action, &user_);
}

StopSignal::~StopSignal() {
  if (!owns_) return;
  ::sigaction(SIGTERM, &term_, nullptr);
  ::sigaction(SIGUSR1, &user_, nullptr);
  installed.store(false);
}

bool StopSignal::requested() const {
  return flag.load();
}

}  // namespace ckpt
