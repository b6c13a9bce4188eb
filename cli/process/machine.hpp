#pragma once

#include <cstdint>
#include <string>

namespace ckpt::cli {

/// The share of the machine that this process may use.
struct Machine {
  std::uint64_t memory_bytes = 0;  ///< the minimum of physical memory, the cgroup's limit and RLIMIT_AS
  unsigned online_cpus = 1;        ///< of the machine, cut to the cgroup's quota (rounded up)
  unsigned allowed_cpus = 1;       ///< in this process's affinity mask, also limited
};

/// Reads the limits. `system_root` is prepended to /proc and /sys, for tests.
Machine read_machine(const std::string& system_root = "");

/// Raises the soft limit of open files of this process to the hard limit.
void raise_open_files();

/// The default of --memory: a quarter of the available memory, at most 8 GiB, divided among the ranks of this node.
std::uint64_t default_memory(const Machine& machine, unsigned local_ranks);

/// The default of --threads: the CPUs that this rank may use, when those of the node are divided among its ranks.
unsigned default_threads(const Machine& machine, unsigned local_ranks);

}  // namespace ckpt::cli
