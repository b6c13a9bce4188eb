#pragma once

#include <string>

namespace ckpt {

/// Whether a path lies on a file system of this machine alone (ext4, XFS, Btrfs, tmpfs, overlay, ...): then locks and
/// shared memory reach everyone who uses it. False where that is not known, or cannot be asked.
bool is_local_file_system(const std::string& path);

}  // namespace ckpt
