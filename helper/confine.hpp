#pragma once

#include <sys/types.h>

#include <cstdint>

/// A hostile file is parsed by a library that has had memory errors: what such an error could do is bounded here, by
/// whatever the kernel offers. A kernel without Landlock or seccomp confines by the rest.

/// What this process may take, in bytes; a limit of 0 is a limit.
struct Limits {
  std::uint64_t memory_bytes = 0;
  std::uint64_t file_bytes = 0;  ///< size of the largest file it may write; UINT64_MAX: any
};

/// From the start on: no core file, few open files, no processes, no privileges by execve, and no life beyond the
/// parent's. Ends the process where a limit is refused.
void limit_resources(const Limits& limits);

/// The processor time that this may take, by the bytes it has to look at: a file made to exhaust it ends this helper.
void limit_seconds(std::uint64_t bytes);

/// What the process may use of memory for its data: limit_resources', less what the program itself takes.
std::uint64_t usable_memory();

/// From here on the process reads and writes the files it has open, allocates, and ends. `reopened`, where it is not
/// -1, is a file that may be opened again by a name; nothing else can be opened, made, renamed or removed, no program
/// started, no socket made.
void confine(int reopened = -1);
