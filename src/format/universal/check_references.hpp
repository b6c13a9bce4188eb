#pragma once

#include "format/result.hpp"
#include "format/universal/manifest.hpp"

namespace ckpt::universal {

/// Checks rows in layout `virtual` against the files that they refer to. Other rows of a virtual checkpoint are whole.
/// errors  corrupt, with the tensor: checks 63 and 64 of FORMAT.md section 10
Result<> check_references(const Manifest& manifest);

}  // namespace ckpt::universal
