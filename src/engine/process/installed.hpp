#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt {

/// Finds an installed part of ckpt: the MPI plug-in, the HDF5 helper. Searches `places` relative to the
/// directory of the file that contains this code (libckpt.so, or the program), then relative to that of
/// the running program, both as mapped by the kernel. argv[0], PATH, LD_LIBRARY_PATH and the current
/// directory are ignored, so a downloaded directory cannot supply code. Absolute; nothing if not
/// installed.
std::optional<std::string> find_installed(std::string_view name, std::initializer_list<std::string_view> places);

}  // namespace ckpt
