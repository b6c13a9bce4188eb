#pragma once

#include <string>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Removes a file or a directory tree of ours. Links are not followed.
Result<> remove_tree(Io& io, const std::string& path);

}  // namespace ckpt
