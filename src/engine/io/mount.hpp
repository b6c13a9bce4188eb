#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt {

/// One line of /proc/PID/mountinfo (Linux, Documentation/filesystems/proc.rst, 3.5).
struct Mount {
  std::string point;                   ///< the mount point
  std::string type;                    ///< "ext4", "nfs4", "overlay"
  std::string source;                  ///< "/dev/nvme0n1p2", "server:/export"
  std::string device;                  ///< "259:2"
  std::vector<std::string> options{};  ///< of the mount, then of the file system

  /// True for an option without a value ("ro") or with one ("local_lock" for "local_lock=all").
  bool has(std::string_view option) const;
  /// "all" for "local_lock=all"; "" if the option is missing or has no value.
  std::string value_of(std::string_view option) const;
};

/// Malformed lines are skipped.
std::vector<Mount> parse_mounts(std::string_view mountinfo);

/// The mount of an absolute path without links: the longest mount point above it, of equal ones the last.
std::optional<Mount> mount_of(const std::vector<Mount>& mounts, std::string_view path);

}  // namespace ckpt
