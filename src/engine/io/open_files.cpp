#include "engine/io/open_files.hpp"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace ckpt {
namespace {

constexpr std::size_t kMostRoom = 4096;   // more open files make nothing faster
constexpr std::size_t kAssumedOpen = 32;  // if /proc does not show it

struct DirCloser {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

std::size_t open_now() {
  const std::unique_ptr<DIR, DirCloser> directory(::opendir("/proc/self/fd"));
  if (!directory) return kAssumedOpen;
  std::size_t count = 0;
  while (::readdir(directory.get()) != nullptr) ++count;
  return count;
}

}  // namespace

std::size_t open_file_room() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostRoom;
  const std::size_t used = open_now();
  if (limit.rlim_cur <= used) return 0;
  return static_cast<std::size_t>(std::min<std::uint64_t>(limit.rlim_cur - used, kMostRoom));
}

}  // namespace ckpt
