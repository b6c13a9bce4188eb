#pragma once

#include <string>

#include "engine/io/io.hpp"

namespace ckpt {

/// The path that was probably meant by one that does not exist: the nearest name in the deepest directory of it that
/// exists. Empty if no name is near.
std::string nearest_path(Io& io, const std::string& path);

}  // namespace ckpt
