#pragma once

#include <string>
#include <string_view>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Writes a small file whole, in the place of one that may be there: a temporary name beside it, synced, renamed over
/// it, the directory synced. After a crash there is the old one or the new one; a temporary one that a crash left is
/// taken over by the next call. The caller sees to it that nobody else writes the same file meanwhile.
/// errors  those of
/// the system; the file is then the old one, or perhaps the new one
Result<> replace_file(Io& io, const std::string& path, std::string_view bytes);

/// What the temporary names end with: readers of a directory pass over such.
constexpr std::string_view kTemporarySuffix = ".tmp";

/// A rename of which the answer may be lost after the deed (a network's: asked again, it finds nothing to rename, or
/// its own work in the way): which of the names leads to the file now decides. Not for an exchange.
Result<> rename_and_look(Io& io, const std::string& from, const std::string& to, RenameMode mode);

}  // namespace ckpt
