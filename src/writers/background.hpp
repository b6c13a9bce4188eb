#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// A thread that runs tasks one after another, over its own Io. Its owner adds tasks from one thread.
class Background {
 public:
  using Task = std::function<void(Io&)>;

  /// `io` becomes the thread's; it must not be used elsewhere while tasks run.
  explicit Background(std::unique_ptr<Io> io);
  ~Background();  ///< runs the added tasks, then ends
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void add(Task task);
  /// Runs a task and waits for it. Exceptions that it throws become failures.
  Result<> run(const std::function<Result<>(Io&)>& task);

 private:
  void work();

  std::unique_ptr<Io> io_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // guarded by mutex_
  bool ending_ = false;     // guarded by mutex_
  std::jthread thread_;     // last member: joined before the members it uses are destroyed
};

}  // namespace ckpt
