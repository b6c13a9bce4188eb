#pragma once

#include <optional>
#include <string>

namespace ckpt {

/// The absolute path of the target of a path, without links. Nothing if it does not exist or cannot be determined.
std::optional<std::string> real_path(const std::string& path);

}  // namespace ckpt
