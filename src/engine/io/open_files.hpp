#pragma once

#include <atomic>
#include <cstddef>

namespace ckpt {

/// Number of files that this process may still open: the soft limit of the system, which the program raises at start
/// and the library does not change, minus the open files.
std::size_t open_file_room();

/// Descriptors shared by all workers of a run: open files are a budget of the process. Thread-safe.
class OpenFileBudget {
 public:
  explicit OpenFileBudget(std::size_t files) : free_(static_cast<std::ptrdiff_t>(files)) {}
  /// False: none is available.
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
