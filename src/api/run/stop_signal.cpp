#include "api/run/stop_signal.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

namespace ckpt {
namespace {

std::mutex mutex;
int users = 0;  // guarded by mutex
// Read by the handler: set before it is installed.
struct sigaction before_term {};
struct sigaction before_user {};
pid_t owner = 0;
std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int number) {
  if (::getpid() == owner) {
    flag.store(true);
    return;
  }
  // The child did not ask for this: the signal has its earlier effect, once this handler has returned.
  ::sigaction(number, number == SIGTERM ? &before_term : &before_user, nullptr);
  ::raise(number);
}

/// A handler that the program has set since stays.
void restore(int number, const struct sigaction& before) {
  struct sigaction now {};
  ::sigaction(number, nullptr, &now);
  if (now.sa_handler == on_signal) ::sigaction(number, &before, nullptr);
}

}  // namespace

StopSignal::StopSignal() {
  const std::lock_guard held(mutex);
  if (++users > 1) return;
  flag.store(false);
  owner = ::getpid();
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, nullptr, &before_term);
  ::sigaction(SIGUSR1, nullptr, &before_user);
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGUSR1, &action, nullptr);
}

StopSignal::~StopSignal() {
  const std::lock_guard held(mutex);
  if (--users > 0) return;
  restore(SIGTERM, before_term);
  restore(SIGUSR1, before_user);
}

bool StopSignal::requested() const {
  return flag.load();
}

}  // namespace ckpt
