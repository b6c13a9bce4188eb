#pragma once

#include <string>

#include "catalog/bucket.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt::catalog {

/// Whether marks let a checkpoint go, for a caller that holds its exclusive lock: until it is released no mark is
/// written. `marks`: their directory.
/// errors  not_done: it is pinned, or a virtual checkpoint that may exist refers to it; io: its marks cannot be read
Result<> check_unprotected(Io& io, const std::string& checkpoint, const std::string& marks, Time now);

}  // namespace ckpt::catalog
