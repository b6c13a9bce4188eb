#pragma once

#include <sys/types.h>

#include <cstdint>

/// Hostile files are parsed by a library that has had memory errors. Confinement limits the effect of such an error
/// with the kernel's features. Without Landlock or seccomp the other limits still apply.

/// Resource limits of this process, in bytes; 0 is a limit too.
struct Limits {
  std::uint64_t memory_bytes = 0;
  std::uint64_t file_bytes = 0;  ///< size of the largest file it may write; UINT64_MAX: any
};

/// Applied at start: no core file, few open files, no processes, no privileges through execve, and no survival of the
/// parent. Ends the process if a limit is refused.
void limit_resources(const Limits& limits);

/// CPU time limit, derived from the number of bytes to process: a file crafted to exhaust CPU time ends this helper.
void limit_seconds(std::uint64_t bytes);

/// Memory that the process may use for data: the limit of limit_resources minus the program itself.
std::uint64_t usable_memory();

/// From here on the process can only read and write its open files, allocate, and exit. No file can be opened, created,
/// renamed or removed, no program started, no socket created.
void confine();
