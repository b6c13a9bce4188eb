#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <string>

#include "engine/io/unique_fd.hpp"

/// Opens paths below a directory that is already open. Follows no symbolic link, opens none, and reaches nothing
/// outside of that directory, whatever other processes do to the names in the meantime.
namespace ckpt {

/// Like openat(2) with O_CLOEXEC and O_NOFOLLOW. On failure no descriptor, and errno: ELOOP for a link on the path or
/// at its end, EXDEV for a path that leads outside, else as openat. `mode` is used with O_CREAT only.
UniqueFd open_beneath(int directory, const std::string& relative, int flags, mode_t mode = 0);

/// The same without openat2(2), which needs Linux 5.6 and which some containers forbid: one openat per path component.
UniqueFd open_by_steps(int directory, const std::string& relative, int flags, mode_t mode = 0);

/// The first symbolic link on the path `relative`, including its last component, as a relative path; "" if there is
/// none.
std::string first_link(int directory, const std::string& relative);

}  // namespace ckpt
