#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <string>

#include "engine/unique_fd.hpp"

/// Opening below a directory that is open already: no symbolic link is passed on the way, none is opened, and nothing
/// outside of that directory is reached, whatever others do to the names meanwhile.
namespace ckpt {

/// As openat(2) with O_CLOEXEC and O_NOFOLLOW. No descriptor, and errno: ELOOP where a link stands on the way or at the
/// end, EXDEV where the path leads out, else as openat. `mode` counts with O_CREAT only.
UniqueFd open_beneath(int directory, const std::string& relative, int flags, mode_t mode = 0);

/// The same without openat2(2), which Linux has from 5.6 on and some containers forbid: one openat for each part.
UniqueFd open_by_steps(int directory, const std::string& relative, int flags, mode_t mode = 0);

/// The first link on the way to `relative`, itself included, relative too; "" where there is none.
std::string first_link(int directory, const std::string& relative);

}  // namespace ckpt
