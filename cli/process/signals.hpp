#pragma once

#include <atomic>

#include "api/run/noted_io.hpp"

namespace ckpt::cli {

/// Installs the handlers. main calls it first, because a forwarded SIGUSR1 kills a process without a handler. SIGINT
/// and SIGTERM request a clean end (the second one kills at once); SIGUSR1 requests one status line; SIGPIPE is
/// ignored, so a conversion does not end when its output is not read; SIGCHLD gets its default action, so that the
/// status of helpers is visible.
void install_signal_handlers();

/// Set once SIGINT or SIGTERM has arrived.
const std::atomic<bool>& stop_flag();
/// The signal that set it, or 0.
int stop_signal();
/// Whether the command has begun to change something: from then on it stops by itself.
Changes& changes();
/// True once for each SIGUSR1 that arrived since the last call (several at once count as one).
bool take_status_request();

}  // namespace ckpt::cli
