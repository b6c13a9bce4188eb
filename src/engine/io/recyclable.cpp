#include "engine/io/recyclable.hpp"

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/io/system_error.hpp"

namespace ckpt {
namespace {

constexpr long kXfsMagic = 0x58465342;  // XFS_SB_MAGIC, which linux/magic.h lacks
constexpr const char* kAccessList = "system.posix_acl_access";
constexpr const char* kDefaultAccessList = "system.posix_acl_default";

bool is_suited(const struct statfs& status) {
  const auto type = static_cast<long>(status.f_type);
  return type == EXT4_SUPER_MAGIC || type == kXfsMagic;
}

/// The process's umask, which can otherwise be read only by changing it, for all threads.
std::optional<mode_t> read_umask() {
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Closer> file(std::fopen("/proc/self/status", "re"));
  if (!file) return std::nullopt;
  std::array<char, 256> line{};
  while (std::fgets(line.data(), static_cast<int>(line.size()), file.get()) != nullptr) {
    unsigned mask = 0;
    if (std::sscanf(line.data(), "Umask: %o", &mask) == 1) return static_cast<mode_t>(mask);
  }
  return std::nullopt;
}

/// Whether a file created now in the same directory would have the same owner, group and rights.
bool belongs_as_new(const struct stat& status, const std::string& path, const NewRights& rights) {
  const std::string directory = parent_path(path);
  struct stat parent {};
  if (::stat(directory.c_str(), &parent) != 0) return false;
  const gid_t group = (parent.st_mode & S_ISGID) != 0 ? parent.st_gid : ::getegid();
  const auto mask = read_umask();
  if (!mask || ::getxattr(directory.c_str(), kDefaultAccessList, nullptr, 0) >= 0) return false;
  constexpr mode_t kAll = 07777;
  constexpr mode_t kFileMode = 0666;
  const uid_t self = ::geteuid();
  const NewRights::Owned made =
      rights.wanted({.owner = self, .group = group, .mode = rights.creation_mode(kFileMode) & ~*mask}, self, kFileMode);
  return status.st_uid == made.owner && status.st_gid == made.group && (status.st_mode & kAll) == made.mode;
}

/// Whether a file shares no bytes with another one; false if unknown.
bool shares_nothing(int fd) {
  constexpr std::uint32_t kExtents = 128;
  constexpr std::size_t kBytes = sizeof(struct fiemap) + kExtents * sizeof(struct fiemap_extent);
  std::vector<std::uint64_t> room(kBytes / sizeof(std::uint64_t));  // the extents follow the head
  auto* const map = reinterpret_cast<struct fiemap*>(room.data());
  for (std::uint64_t at = 0;;) {
    std::ranges::fill(room, 0);
    map->fm_start = at;
    map->fm_length = FIEMAP_MAX_OFFSET - at;
    map->fm_extent_count = kExtents;
    if (::ioctl(fd, FS_IOC_FIEMAP, map) != 0) return false;
    const std::uint32_t count = map->fm_mapped_extents;
    if (count == 0) return true;
    if (count > kExtents) return false;
    const std::span<const struct fiemap_extent> extents(map->fm_extents, count);
    for (const struct fiemap_extent& extent : extents) {
      if ((extent.fe_flags & FIEMAP_EXTENT_SHARED) != 0) return false;
    }
    const struct fiemap_extent& last = extents.back();
    if ((last.fe_flags & FIEMAP_EXTENT_LAST) != 0) return true;
    const std::uint64_t next = last.fe_logical + last.fe_length;
    if (next <= at) return false;
    at = next;
  }
}

/// Whether no other descriptor or mapping of the file exists, in any process.
bool is_open_here_alone(int fd) {
  if (::fcntl(fd, F_SETSIG, SIGURG) != 0) return false;
  const bool granted = ::fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
  if (granted && ::fcntl(fd, F_SETLEASE, F_UNLCK) != 0) return false;
  return granted;
}

}  // namespace

bool recycles_files(const std::string& directory) {
  struct statfs status {};
  return ::statfs(directory.c_str(), &status) == 0 && is_suited(status) && read_umask();
}

Result<> check_recyclable(int fd, const std::string& path, const NewRights& rights) {
  const auto refuse = [&](const char* why) {
    return fail({.code = Errc::locked, .message = path + ": recycle: " + why, .file = path});
  };
  struct statfs file_system {};
  struct stat status {};
  if (::fstatfs(fd, &file_system) != 0 || ::fstat(fd, &status) != 0) return fail(system_error(errno, path, "recycle"));
  if (!is_suited(file_system)) return refuse("neither ext4 nor XFS");
  if (!S_ISREG(status.st_mode)) return refuse("not a regular file");
  if (status.st_nlink != 1) return refuse("it has another name");
  if (!belongs_as_new(status, path, rights) || ::fgetxattr(fd, kAccessList, nullptr, 0) >= 0)
    return refuse("a new file would have another owner or other rights");
  if (!shares_nothing(fd)) return refuse("it shares bytes with another file");
  if (!is_open_here_alone(fd)) return refuse("another process has it open");
  return {};
}

}  // namespace ckpt
