#pragma once

#include "format/hash.hpp"
#include "format/model/model.hpp"

namespace ckpt {

/// Hash over (path, size, mtime) of the map's files in path order and over its metadata: equal wherever the same source
/// is seen.
Hash128 fingerprint(const Map& map);
/// The inputs of a conversion's id: the fingerprint and, if the format stores no hashes of its files, their inodes and
/// change times. A rewritten file may have its old size and mtime.
Hash128 identity(const Map& map);

}  // namespace ckpt
