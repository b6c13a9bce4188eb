#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/io/io.hpp"
#include "engine/io/mount.hpp"

namespace ckpt {

/// Facts about the block device below a file system (/sys/dev/block/MAJOR:MINOR).
struct DeviceFacts {
  std::string scheduler{};  ///< "none", "mq-deadline", "bfq"
  bool rotational = false;
  std::string raid_level{};      ///< of md: "raid5"
  std::uint64_t raid_chunk = 0;  ///< bytes
  std::uint64_t raid_disks = 0;
  std::uint64_t raid_missing = 0;  ///< disks that failed or are absent
};

/// Results of probes in the directory: files of a few KiB, removed again.
struct ProbeResult {
  bool writable = false;
  std::string refused{};  ///< why it is not writable
  bool direct = false;    ///< O_DIRECT is taken
  bool locks = false;     ///< a second lock on a locked directory is refused
  bool renames = false;   ///< without replacing
  bool exchange = false;  ///< two names for one another
};

struct LustreStripes {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};

/// A directory for checkpoints.
struct VolumeFacts {
  std::string path{};
  std::optional<Mount> mount{};
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t total_inodes = 0;  ///< 0: not counted by this file system
  std::uint64_t free_inodes = 0;
  std::optional<std::uint64_t> quota_left{};  ///< bytes, of the user; none: no quota, or it cannot be asked
  std::optional<DeviceFacts> device{};
  std::optional<LustreStripes> lustre{};
  ProbeResult tried{};
};

/// `path` is a directory. `root` is prepended to /proc and /sys, for tests.
/// errors  not_found
Result<VolumeFacts> read_volume_facts(Io& io, const std::string& path, const std::string& root = "");

/// The extended attribute lustre.lov of a directory (lustre_user.h, struct lov_user_md_v1 and _v3, little-endian).
std::optional<LustreStripes> parse_lustre_stripes(std::string_view attribute);

}  // namespace ckpt
