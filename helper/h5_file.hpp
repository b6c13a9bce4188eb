#pragma once

#include <hdf5.h>

#include <cstdint>
#include <string>

/// Opens an HDF5 file that stands somewhere inside a file: at its begin, or as an entry of a zip archive.
struct Range {
  std::string path;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// Read-only, through a driver of our own that never leaves the range; without plug-ins. Ends the
/// process where HDF5 refuses it. One range a process.
hid_t open_range(const Range& range);

/// How the process ends, for src/engine/helper_process.cpp, which knows the numbers too.
enum class Verdict { corrupt = 1, refused = 3, unsupported = 4, no_space = 5 };

/// Ends the process with a message on standard error: the caller's error.
[[noreturn]] void stop(const std::string& reason, Verdict verdict = Verdict::corrupt);

/// The same after a call of HDF5 that failed: corrupt, or unsupported where it was a version that this HDF5 does not
/// know.
[[noreturn]] void stop_at(const std::string& path, const std::string& what);
