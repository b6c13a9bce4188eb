#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/io/mount.hpp"

namespace ckpt {

/// How far a lock (flock) on a file system reaches.
enum class LockReach : std::uint8_t {
  everyone,  ///< the file system is local to this machine
  server,    ///< sent to the server, which other hosts ask too; how reliably depends on its version and settings
  host,      ///< no known process on another host
};

/// The location of a path, and how far its locks reach.
struct LockScope {
  LockReach reach = LockReach::everyone;
  std::string path{};  ///< absolute, without links, unless `everyone`
};

/// Whether a path is on a file system of this machine alone (ext4, XFS, Btrfs, tmpfs, overlay, ...), so that locks and
/// shared memory reach every process that uses it. False if unknown.
bool is_local_file_system(const std::string& path);

/// Of a file system that is not known to be this machine's alone.
LockReach reach_of(const std::optional<Mount>& mount);

/// Of a path, or of the directory that would hold it.
LockScope lock_scope_of(const std::string& path);

}  // namespace ckpt
