#pragma once

#include <string>

#include "engine/io/archive.hpp"
#include "format/model/model.hpp"

namespace ckpt {

/// Makes a map whose files are members of an archive one whose first file is the archive, its root: the members are ranges
/// of it. Files elsewhere stay. The map has no hashes of leaves.
///
/// root  of the map: the archive, or a folder in it
void place_in_archive(Map& map, const std::string& root, const Archive& archive);

}  // namespace ckpt
