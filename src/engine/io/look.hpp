#pragma once

#include <optional>
#include <string>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// What is at a path, or nothing.
Result<std::optional<FileInfo>> look(Io& io, const std::string& path);

}  // namespace ckpt
