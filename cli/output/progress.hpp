#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "cli/output/console.hpp"
#include "cli/text/units.hpp"

namespace ckpt::cli {

enum class ProgressMode : std::uint8_t { none, bar, plain, json };

/// The meaning of --progress=auto: a moving line if standard error is a terminal (never in an MPI launch; the console
/// decides), else whole lines; nothing with --quiet. An explicit mode is used unchanged.
ProgressMode progress_mode(std::string_view choice, bool quiet, bool err_is_terminal);

/// The state of a phase at one moment.
struct Reading {
  std::string phase;
  std::uint64_t done_bytes = 0;
  std::uint64_t total_bytes = 0;
  double elapsed_s = 0;           ///< of this phase
  double rate = 0;                ///< bytes per second over the last 10 s
  double mean = 0;                ///< bytes per second over the phase
  std::optional<double> eta_s{};  ///< nothing while no byte has moved
  std::string name{};             ///< Progress::name
  std::uint64_t item = 0;         ///< Progress::item
  std::uint64_t items = 0;
};

/// Turns reports into readings. Times are seconds on any steady clock; no clock inside.
class Meter {
 public:
  void update(const Progress& progress, double now_s);
  Reading read(double now_s) const;
  bool started() const { return !phase_.empty(); }

 private:
  struct Sample {
    double at_s;
    std::uint64_t bytes;
  };
  std::string phase_;
  double began_s_ = 0;
  std::uint64_t began_bytes_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
  std::string name_;
  std::uint64_t item_ = 0;
  std::uint64_t items_ = 0;
  std::deque<Sample> samples_;  // four a second, of the last 10 s: at most 42
};

/// " read+convert  62 % ██████░░░░  9.3/14.9 GiB   2.10 GiB/s (mean 1.90 GiB/s)   ETA 0:03   wte.weight", at most
/// `width` columns.
std::string bar_line(const Reading& reading, SizeStyle style, std::size_t width);
/// "ckpt: read+convert 62 %, 9.3/14.9 GiB, 2.10 GiB/s (mean 1.90 GiB/s), ETA 0:03"
std::string plain_line(const Reading& reading, SizeStyle style);
/// {"schema":"ckpt.progress/1","phase":...}: one line.
std::string json_line(const Reading& reading);

/// Shows progress from its own thread, so that a stalled disk does not silence it. A moving line is redrawn ten
/// times a second; whole lines come first after 5 s, then every `every`; JSON lines every second. SIGUSR1 prints one
/// line at once in every mode. report() may be called from one thread at a time.
class ProgressDisplay {
 public:
  struct Options {
    ProgressMode mode = ProgressMode::none;
    SizeStyle style = SizeStyle::binary;
    std::chrono::milliseconds every{30'000};
  };
  ProgressDisplay(Console& console, Options options);
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  void report(const Progress& progress);

 private:
  double now_s() const;
  void run();
  void show(const Reading& reading, double now_s);
  void show_signals(const std::optional<Reading>& reading, double now_s);

  Console& console_;
  Options options_;
  std::chrono::steady_clock::time_point began_;
  std::mutex mutex_;
  std::condition_variable wake_;
  Meter meter_;             // guarded by mutex_
  bool ended_ = false;      // guarded by mutex_
  double next_line_s_ = 0;  // of thread_ only
  bool stop_said_ = false;  // of thread_ only
  std::jthread thread_;     // last member: joined before the members it uses are destroyed
};

}  // namespace ckpt::cli
