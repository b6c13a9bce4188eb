#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/publish/strays.hpp"
#include "format/result.hpp"

/// Files in a checkpoint's directory that ckpt did not write. A user may need them: they are never removed, and
/// the checkpoint stays.
namespace ckpt::catalog {

/// The files in a universal checkpoint that no save, conversion or mark writes (engine/publish/strays.hpp).
/// errors  io
Result<std::vector<std::string>> find_strays(Io& io, const std::string& checkpoint, std::string_view below = {});

/// Entries in another tool's checkpoint, which may hold any file, that certainly do not belong to it: a git repository,
/// a store of ours, checkpoints of ours, at any depth.
/// errors  io
Result<std::vector<std::string>> find_strays_in_foreign(Io& io, const std::string& checkpoint);

/// The same of a dropped optimizer in the trash.
/// errors  io
Result<std::vector<std::string>> find_strays_in_optimizer(Io& io, const std::string& files);

/// Files that keep a checkpoint from being deleted, whole or its optimizer only. Nothing for a single file.
/// errors  io
Result<std::vector<std::string>> find_strays_in_the_way(Io& io, const std::string& checkpoint, bool foreign,
                                                        bool whole);

/// errors  not_done: it holds other files, with strays_text
Result<> check_no_strays(Result<std::vector<std::string>> found);

}  // namespace ckpt::catalog
