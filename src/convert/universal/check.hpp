#pragma once

#include <string>

#include "convert/format.hpp"

namespace ckpt::universal {

/// What sums.bin promises of every file. Findings: roots that are not those of their leaves, shard headers that
/// disagree with the layout, the manifest's second copy missing or different (damage); files that no record names
/// (notes).
///
/// errors  as open_checkpoint; incomplete: files are missing
Result<StoredHashes> stored_hashes(Io& io, const std::string& root);

}  // namespace ckpt::universal
