#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/publish/strays.hpp"
#include "format/result.hpp"

/// What stands in a checkpoint's directory that ckpt did not put there. Somebody may want it: it is never removed
/// unasked, and neither is the checkpoint then.
namespace ckpt::catalog {

/// The files of a checkpoint of ours that no save, conversion or mark makes (engine/publish/strays.hpp).
/// errors  io
Result<std::vector<std::string>> find_strays(Io& io, const std::string& checkpoint, std::string_view below = {});

/// What in a checkpoint of another tool, which may hold any file, is none of its own for certain: a repository of git,
/// a store of ours, checkpoints of ours. Only its own directory is checked.
/// errors  io
Result<std::vector<std::string>> find_strays_in_foreign(Io& io, const std::string& checkpoint);

/// The same of a dropped optimizer in the trash.
/// errors  io
Result<std::vector<std::string>> find_strays_in_optimizer(Io& io, const std::string& files);

/// What keeps a checkpoint in its run that would go, whole or with its optimizer only. Nothing of a single file. errors
/// io
Result<std::vector<std::string>> find_strays_in_the_way(Io& io, const std::string& checkpoint, bool foreign,
                                                        bool whole);

/// errors  not_done: something else stands there, with strays_text
Result<> check_no_strays(Result<std::vector<std::string>> found);

}  // namespace ckpt::catalog
