#include "cli/process/signals.hpp"

#include <csignal>

namespace ckpt::cli {
namespace {

std::atomic<bool> stop{false};
std::atomic<int> stopped_by{0};
std::atomic<bool> status_wanted{false};
Changes noted;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_stop(int signal) {
  stopped_by.store(signal, std::memory_order_relaxed);
  stop.store(true, std::memory_order_relaxed);
}

void on_status(int) {
  status_wanted.store(true, std::memory_order_relaxed);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_handler = on_status;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  action.sa_handler = on_stop;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;  // the second one finds the default action again
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  action.sa_flags = 0;
  sigaction(SIGPIPE, &action, nullptr);
  sigaction(SIGXFSZ, &action, nullptr);  // a write beyond `ulimit -f` is an error like another
  // Ignored, which a parent can hand down, it would hide how a helper ended.
  action.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &action, nullptr);
}

const std::atomic<bool>& stop_flag() {
  return stop;
}

int stop_signal() {
  return stopped_by.load(std::memory_order_relaxed);
}

Changes& changes() {
  return noted;
}

bool take_status_request() {
  return status_wanted.exchange(false, std::memory_order_relaxed);
}

}  // namespace ckpt::cli
