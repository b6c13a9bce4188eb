#include "engine/io/beneath.hpp"

#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string_view>

namespace ckpt {
namespace {

constexpr unsigned kMostAgain = 16;  // EAGAIN: a concurrent rename above a ".." (openat2(2))

bool is_link_at(int directory, const std::string& name) {
  struct stat status {};
  return ::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
}

/// One path component. A link is ELOOP, also if the system call reports that it is not a directory.
UniqueFd open_part(int directory, const std::string& part, int flags, mode_t mode) {
  UniqueFd fd(::openat(directory, part.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, mode));
  const int reason = errno;
  if (!fd && reason == ENOTDIR && is_link_at(directory, part)) {
    errno = ELOOP;
  } else {
    errno = reason;
  }
  return fd;
}

/// Calls `each(directory, part, is_last)` for each part of a path while it returns a descriptor to continue from.
template <class Each>
UniqueFd walk(int directory, std::string_view relative, Each each) {
  UniqueFd at;
  for (;;) {
    const std::size_t slash = relative.find('/');
    const std::string part(relative.substr(0, slash));
    const bool is_last = slash == std::string_view::npos;
    if (part.empty() || part == "..") {
      errno = EXDEV;
      return {};
    }
    UniqueFd next = each(at ? at.get() : directory, part, is_last);
    if (!next || is_last) return next;
    at = std::move(next);
    relative.remove_prefix(slash + 1);
  }
}

}  // namespace

UniqueFd open_by_steps(int directory, const std::string& relative, int flags, mode_t mode) {
  return walk(directory, relative, [&](int at, const std::string& part, bool is_last) {
    return is_last ? open_part(at, part, flags, mode) : open_part(at, part, O_PATH | O_DIRECTORY, 0);
  });
}

UniqueFd open_beneath(int directory, const std::string& relative, int flags, mode_t mode) {
  struct open_how how {};
  how.flags = static_cast<decltype(how.flags)>(flags | O_NOFOLLOW | O_CLOEXEC);
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  for (unsigned n = 0; n < kMostAgain; ++n) {
    UniqueFd fd(static_cast<int>(::syscall(SYS_openat2, directory, relative.c_str(), &how, sizeof how)));
    if (fd || (errno != EAGAIN && errno != EINTR)) {
      // EPERM: a filter of a container's, or the file's own refusal, which the steps meet again.
      if (!fd && (errno == ENOSYS || errno == EPERM)) break;
      return fd;
    }
  }
  return open_by_steps(directory, relative, flags, mode);
}

std::string first_link(int directory, const std::string& relative) {
  std::string seen;
  std::string found;
  walk(directory, relative, [&](int at, const std::string& part, bool) {
    seen += (seen.empty() ? "" : "/") + part;
    if (is_link_at(at, part)) {
      found = seen;
      return UniqueFd();
    }
    return open_part(at, part, O_PATH, 0);
  });
  return found;
}

}  // namespace ckpt
