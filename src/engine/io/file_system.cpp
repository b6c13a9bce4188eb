#include "engine/io/file_system.hpp"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

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

LockReach reach_of(const std::optional<Mount>& mount) {
  if (!mount) return LockReach::host;
  if (mount->type == "nfs" || mount->type == "nfs4") {  // nfs(5)
    const std::string local_lock = mount->value_of("local_lock");
    const bool here_only = mount->has("nolock") || local_lock == "all" || local_lock == "flock";
    return here_only ? LockReach::host : LockReach::server;
  }
  if (mount->type == "lustre") return mount->has("flock") ? LockReach::server : LockReach::host;  // mount.lustre(8)
  if (mount->type == "cifs" || mount->type == "smb3") return mount->has("nobrl") ? LockReach::host : LockReach::server;
  if (mount->type == "gpfs" || mount->type == "ceph") return LockReach::server;
  return LockReach::host;  // FUSE too: most of its file systems leave flock to this host's kernel
}

LockScope lock_scope_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path whole = fs::absolute(path, error).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  // A name that does not exist: the directory that would hold it.
  const bool there = fs::exists(whole, error);
  const fs::path asked = there ? whole : whole.parent_path();
  if (is_local_file_system(asked.string())) return {.path = path};
  const fs::path real = fs::canonical(asked, error);
  if (error) return {.reach = LockReach::host, .path = whole.string()};
  std::ifstream mounts("/proc/self/mountinfo");
  const std::string text{std::istreambuf_iterator<char>(mounts), {}};
  return {.reach = reach_of(mount_of(parse_mounts(text), real.string())),
          .path = (there ? real : real / whole.filename()).string()};
}

}  // namespace ckpt
