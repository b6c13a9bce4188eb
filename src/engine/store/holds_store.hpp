#pragma once

#include <string>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Whether a directory has a .ckpt of a store, which is empty or has files of ours; one of another program does not
/// count.
/// errors  io
Result<bool> holds_store(Io& io, const std::string& directory);

}  // namespace ckpt
