#pragma once

#include <optional>
#include <string>

namespace ckpt {

/// The absolute path of what a path leads to, without links. Nothing where that is not there, or cannot be told.
std::optional<std::string> real_path(const std::string& path);

}  // namespace ckpt
