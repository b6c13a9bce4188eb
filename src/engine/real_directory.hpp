#pragma once

#include <string>

namespace ckpt {

/// The absolute path of a directory, without links; unchanged if the system cannot resolve it.
std::string real_directory(const std::string& path);

}  // namespace ckpt
