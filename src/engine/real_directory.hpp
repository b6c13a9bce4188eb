#pragma once

#include <string>

namespace ckpt {

/// A directory's absolute path without links; as it is where the system does not tell.
std::string real_directory(const std::string& path);

}  // namespace ckpt
