#pragma once

#include <hdf5.h>

#include <cstdint>
#include <string>

/// Opens an HDF5 file inside another file: at its beginning, or as an entry of a zip archive.
struct Range {
  int descriptor = -1;  ///< of the file, open for reading
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// Read-only, through our own driver, which never leaves the range; without plug-ins. Ends the
/// process where HDF5 refuses it. One range a process.
hid_t open_range(const Range& range);

/// Makes an HDF5 file in an empty one that is open for reading and writing, which needs no name: through a driver of
/// our own that never leaves it. Negative where HDF5 refuses. One file a process, and no range.
hid_t make_file(int descriptor, hid_t create, hid_t access);

/// How the process ends, for src/engine/process/helper_process.cpp, which knows the numbers too.
enum class Verdict { corrupt = 1, refused = 3, unsupported = 4, no_space = 5, memory = 6, io = 7, changed = 8 };

/// The message of a system error, which says nothing about the file.
Verdict verdict_of(int error);

/// Ends the process with a message on standard error: the caller's error.
[[noreturn]] void stop(const std::string& reason, Verdict verdict = Verdict::corrupt);

/// The same after a failed call of HDF5: corrupt, unless HDF5 reports an unknown version, lack of memory, or a file
/// that the system could not read or write.
[[noreturn]] void stop_at(const std::string& path, const std::string& what);

/// The same when memory is exhausted: the limit is ours, and says nothing about the file.
[[noreturn]] void stop_without_memory(const std::string& said);
