#pragma once

#include <string>

#include "engine/io/held_directories.hpp"
#include "format/result.hpp"

/// Whether a file that held something else may be overwritten in place of a new one. For posix_io.cpp.
namespace ckpt {

/// Whether overwriting gains on the file system of a directory, and all conditions below can be asked there: ext4 and
/// XFS, whose written extents need no conversion under the journal. Files of others are rebuilt.
bool recycles_files(const std::string& directory);

/// Nothing is written to the file before this returns. Its conditions:
///  - a regular file on ext4 or XFS;
///  - the owner, the group, the mode and the (absent) access list that a file made now in its directory would have, by
///  these rights;
///  - one name: a second one would show what is written;
///  - no bytes shared with another file: overwriting those would take new space, and be no faster;
///  - nobody else has it open or mapped: a lease for writing is granted only then. It is given back at once, as the
///  next
///    one to open the file would wait for it, and the system would end its holder by a signal. Until then that signal
///    is SIGURG, which nobody dies of.
/// errors  locked, with the condition that does not hold
Result<> check_recyclable(int fd, const std::string& path, const NewRights& rights);

}  // namespace ckpt
