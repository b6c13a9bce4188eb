#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt {

/// Finds a part of ckpt that is loaded or started: the MPI plug-in, the HDF5 helper. It is looked for at `places`,
/// relative to the directory of the file that this code was loaded from (libckpt.so, or the program itself), then to
/// that of the running program. Both are what the kernel mapped: argv[0], PATH, LD_LIBRARY_PATH and the current
/// directory have no say, so that nobody's downloaded directory supplies code. Absolute; nothing where it is not
/// installed.
std::optional<std::string> find_installed(std::string_view name, std::initializer_list<std::string_view> places);

}  // namespace ckpt
