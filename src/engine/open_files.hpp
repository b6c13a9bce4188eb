#pragma once

#include <atomic>
#include <cstddef>

namespace ckpt {

/// How many files this process may open besides those that it has open now: the system's soft limit, which the program
/// raises when it starts and a library leaves as it is.
std::size_t open_file_room();

/// Descriptors that all workers of a run share: open files are a budget of the process. Thread-safe.
class OpenFileBudget {
 public:
  explicit OpenFileBudget(std::size_t files) : free_(static_cast<std::ptrdiff_t>(files)) {}
  /// False: none is free.
  bool try_take() {
    if (free_.fetch_sub(1, std::memory_order_relaxed) > 0) return true;
    free_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  void give_back() { free_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<std::ptrdiff_t> free_;
};

}  // namespace ckpt
