#pragma once

#include <string>

#include "convert/format.hpp"

namespace ckpt::universal {

/// What sums.bin promises of every file. Findings: checks 53 to 59 and 62 of FORMAT.md section 10 (damage), and other
/// files that no record names (notes).
///
/// errors  as open_checkpoint; incomplete: files are missing
Result<StoredHashes> stored_hashes(Io& io, const std::string& root);

}  // namespace ckpt::universal
