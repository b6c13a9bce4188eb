#include "cli/commands/watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "catalog/scan/utc.hpp"
#include "cli/process/signals.hpp"
#include "cli/words/flag_values.hpp"
#include "cli/words/store_options.hpp"

namespace ckpt::cli {
namespace {

constexpr double kMostSeconds = 24 * 3600;

/// "5" and "5s" are seconds.
Result<double> period_of(std::string_view text) {
  const bool is_plain = !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  CKPT_TRY(const double seconds, seconds_of(is_plain ? std::string(text) + "s" : std::string(text)));
  if (seconds < 1 || seconds > kMostSeconds) return fail(Errc::usage, "expected a time from 1 s to 24 h");
  return seconds;
}

Result<double> read_watch(const Context& context) {
  const Words& words = context.words;
  double seconds = 0;
  CKPT_CHECK(read_flag(words, "watch", seconds, period_of));
  for (const char* other : {"json", "csv", "tsv", "quiet", "prom", "rebuild"}) {
    if (words.value(other) != nullptr && (words.on(other) || !words.text(other).empty()))
      return fail({.code = Errc::usage,
                   .message = fmt::format("--watch and {} cannot be used together", words.value(other)->origin),
                   .hint = "for scripts, run the command without --watch in a loop"});
  }
  if (!context.console.out_is_terminal())
    return fail({.code = Errc::usage,
                 .message = "--watch needs a terminal: standard output is a file or a pipe",
                 .hint = "for scripts, run the command without --watch in a loop"});
  return seconds;
}

/// False if a signal arrived.
bool wait(double seconds) {
  constexpr std::chrono::milliseconds kLook(50);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until) {
    if (stop_flag().load(std::memory_order_relaxed)) return false;
    std::this_thread::sleep_for(kLook);
  }
  return !stop_flag().load(std::memory_order_relaxed);
}

Answer stopped_watch() {
  if (stop_signal() == SIGTERM) return failed({.code = Errc::terminated, .message = "stopped by SIGTERM"});
  return {};
}

}  // namespace

Answer watched(Context& context, const std::function<Answer()>& once) {
  if (context.words.value("watch") == nullptr) return once();
  const auto seconds = read_watch(context);
  if (!seconds) return failed(seconds.error());
  do {
    context.console.begin_frame();
    const auto time = std::chrono::floor<std::chrono::seconds>(now());
    context.console.out(fmt::format("{} · every {:g} s · Ctrl-C ends\n\n", catalog::time_text(time), *seconds));
    Answer answer = once();
    const bool stopped = stop_flag().load(std::memory_order_relaxed);
    if (stopped || answer.exit_code != 0) {
      context.console.drop_frame();
      return stopped ? stopped_watch() : answer;
    }
    if (!context.console.show_frame()) return answer;  // the terminal is gone: finish() reports it
  } while (wait(*seconds));
  return stopped_watch();
}

}  // namespace ckpt::cli
