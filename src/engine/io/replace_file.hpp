#pragma once

#include <string>
#include <string_view>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Replaces a small file atomically: a temporary file next to it, synced, renamed over it, the
/// directory synced. After a crash the old or the new file is there; the next call reuses a
/// leftover temporary file. The caller ensures that no other process writes the same file at the
/// same time.
/// errors  not_durable: the new file is in place; others are the system's, and the old one is
Result<> replace_file(Io& io, const std::string& path, std::string_view bytes);

/// The same of a file that several processes may replace at once: they take turns by a lock on its directory, where the
/// file system has locks.
/// errors  locked: another one holds the lock for more than 10 s
Result<> replace_shared_file(Io& io, const std::string& path, std::string_view bytes);

/// Creates a small file in the same way; one that exists is never replaced.
/// errors  target_exists; not_durable: the file is in place
Result<> create_file(Io& io, const std::string& path, std::string_view bytes);

/// Suffix of temporary names; readers of a directory skip them.
constexpr std::string_view kTemporarySuffix = ".tmp";

/// A rename whose reply may be lost after it was done (over a network: the repeated request finds nothing to rename, or
/// its own work in the way): which of the names leads to the file now decides. Not for an exchange.
Result<> rename_and_look(Io& io, const std::string& from, const std::string& to, RenameMode mode);

}  // namespace ckpt
