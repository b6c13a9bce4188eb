#pragma once

#include <string>

#include "engine/io/held_directories.hpp"
#include "format/result.hpp"

/// Whether an old file may be overwritten instead of creating a new one. For posix_io.cpp.
namespace ckpt {

/// Whether overwriting gains on the file system of a directory, and all conditions below can be asked there: ext4 and
/// XFS, whose written extents need no conversion under the journal. Files of others are rebuilt.
bool recycles_files(const std::string& directory);

/// Conditions for overwriting a file. Nothing is written to it before this returns.
/// - a regular file on ext4 or XFS;
/// - owner, group, mode and (absent) access list are those of a new file in its directory, by these rights;
/// - one name: a second one would show the new bytes;
/// - no bytes shared with another file: overwriting them would allocate space, and be no faster;
/// - not open or mapped elsewhere: only then does the system grant a
///   write lease. It is released at once, as the next process that
///   opens the file would wait for it and the system would signal its
///   holder. Until then that signal is SIGURG, which is ignored by
///   default.
/// errors  locked, with the condition that does not hold
Result<> check_recyclable(int fd, const std::string& path, const NewRights& rights);

}  // namespace ckpt
