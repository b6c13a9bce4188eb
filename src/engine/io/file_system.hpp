#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/io/mount.hpp"

namespace ckpt {

/// How far a lock (flock) on a file system reaches.
enum class LockReach : std::uint8_t {
  everyone,  ///< the file system is this machine's alone: all who can use it
  server,    ///< a server is told of it, which other hosts ask too; how well, its version and setting decide
  host,      ///< nobody on another host, as far as is known
};

/// Where a path is, and what its locks are worth.
struct LockScope {
  LockReach reach = LockReach::everyone;
  std::string path{};  ///< absolute, without links, where it is not `everyone`
};

/// Whether a path lies on a file system of this machine alone (ext4, XFS, Btrfs, tmpfs, overlay, ...): then locks and
/// shared memory reach everyone who uses it. False where that is not known, or cannot be asked.
bool is_local_file_system(const std::string& path);

/// Of a file system that is not known to be this machine's alone.
LockReach reach_of(const std::optional<Mount>& mount);

/// Of a path, or of the directory that it would stand in.
LockScope lock_scope_of(const std::string& path);

}  // namespace ckpt
