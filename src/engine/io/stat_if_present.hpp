#pragma once

#include <optional>
#include <string>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// The metadata of a path, or nothing if it does not exist.
Result<std::optional<FileInfo>> stat_if_present(Io& io, const std::string& path);

}  // namespace ckpt
