#include "engine/host.hpp"

#include <sys/statvfs.h>
#include <sys/utsname.h>

namespace ckpt {

std::string host_name() {
  utsname names{};
  return ::uname(&names) == 0 ? names.nodename : "";
}

std::uint64_t volume_bytes(const std::string& path) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) return 0;
  std::uint64_t bytes = 0;
  return __builtin_mul_overflow(status.f_blocks, status.f_frsize, &bytes) ? 0 : bytes;
}

}  // namespace ckpt
