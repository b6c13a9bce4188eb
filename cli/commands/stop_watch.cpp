#include "cli/commands/stop_watch.hpp"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>

#include "cli/commands/session.hpp"
#include "cli/process/signals.hpp"
#include "cli/report/say.hpp"

namespace ckpt::cli {
namespace {

constexpr std::chrono::milliseconds kLook(50);
constexpr int kLooks = 10;  // after the signal, before the process is ended

/// A stream that can be written without waiting for a reader.
void write_now(int descriptor, std::string_view text) {
  pollfd ready{descriptor, POLLOUT, 0};
  if (::poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return;
  [[maybe_unused]] const auto written = ::write(descriptor, text.data(), text.size());
}

}  // namespace

StopWatch::StopWatch(std::string_view verb, const Settings& settings)
    : verb_(verb), settings_(settings), thread_([this] { run(); }) {}

StopWatch::~StopWatch() {
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
}

void StopWatch::run() {
  std::unique_lock lock(mutex_);
  for (int looks = 0; !wake_.wait_for(lock, kLook, [this] { return ended_; });) {
    looks = stop_flag().load(std::memory_order_relaxed) ? looks + 1 : 0;
    if (looks > kLooks && changes().refuse()) end();
  }
}

void StopWatch::end() const {
  Answer answer = failed(name_signal({.code = Errc::interrupted, .message = "stopped; nothing was changed"}));
  // The command still runs, and may hold the console.
  if (settings_.json) {
    write_now(STDOUT_FILENO, document(verb_, answer));
  } else {
    std::string text;
    for (const std::string& line : error_lines(answer.failures.front(), settings_.sizes, nullptr)) text += line + "\n";
    write_now(STDERR_FILENO, text);
  }
  std::_Exit(answer.exit_code);
}

}  // namespace ckpt::cli
