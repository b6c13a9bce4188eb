#pragma once

#include <condition_variable>
#include <mutex>
#include <string_view>
#include <thread>

#include "cli/words/settings.hpp"

namespace ckpt::cli {

/// Ends the process soon after SIGINT or SIGTERM, with the exit code of the signal, if the command does not stop by
/// itself: it does not check the flag while it reads policies or metadata, or plans. Once a command has begun to change
/// something, it stops and cleans up by itself.
class StopWatch {
 public:
  StopWatch(std::string_view verb, const Settings& settings);
  ~StopWatch();
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

 private:
  void run();
  [[noreturn]] void end() const;

  std::string_view verb_;
  const Settings& settings_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;   // guarded by mutex_
  std::jthread thread_;  // last member: joined before the members it uses are destroyed
};

}  // namespace ckpt::cli
