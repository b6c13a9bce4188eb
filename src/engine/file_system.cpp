#include "engine/file_system.hpp"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>

namespace ckpt {
namespace {

constexpr long kXfs = 0x58465342;  // XFS_SB_MAGIC, which linux/magic.h lacks
constexpr long kZfs = 0x2fc12fc1;
constexpr std::array<long, 8> kLocal{
    EXT4_SUPER_MAGIC, kXfs, BTRFS_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, RAMFS_MAGIC, kZfs};

}  // namespace

bool is_local_file_system(const std::string& path) {
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0) return false;
  return std::find(kLocal.begin(), kLocal.end(), static_cast<long>(status.f_type)) != kLocal.end();
}

}  // namespace ckpt
