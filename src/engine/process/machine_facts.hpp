#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ckpt {

/// Facts about this machine that saves and conversions depend on.
struct MachineFacts {
  std::string kernel{};                      ///< "6.1.0-18-amd64"
  std::optional<std::string> uring_refused;  ///< why there is no io_uring; empty: it works
  std::optional<int> uring_disabled{};       ///< kernel.io_uring_disabled: 1 and 2 forbid it
  std::uint64_t locked_bytes = 0;            ///< RLIMIT_MEMLOCK; all ones: no limit
  std::uint64_t open_files = 0;              ///< RLIMIT_NOFILE, soft; all ones: no limit
  std::uint64_t most_open_files = 0;         ///< and hard
  std::string transparent_pages{};           ///< "always", "madvise", "never"; empty: unknown
  std::uint64_t huge_pages_free = 0;         ///< of hugetlb
  std::optional<bool> clock_synchronised{};
};

/// `root` is prepended to /proc and /sys, for tests.
MachineFacts read_machine_facts(const std::string& root = "");

}  // namespace ckpt
