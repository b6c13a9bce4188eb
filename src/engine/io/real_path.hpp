#pragma once

#include <optional>
#include <string>

#include "format/result.hpp"

namespace ckpt {

/// The absolute path of the target of a path, without links. Nothing if it does not exist, or its links lead in a
/// circle.
/// errors  io: it cannot be determined
Result<std::optional<std::string>> find_real_path(const std::string& path);
/// The same; nothing also if it cannot be determined.
std::optional<std::string> real_path(const std::string& path);

/// A path that need not exist, with its links replaced by where they lead now; unchanged if it has none.
std::string without_links(const std::string& path);

}  // namespace ckpt
