#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/io.hpp"
#include "format/result.hpp"

/// Files in a ckpt directory that ckpt did not write. A user may need them, so they are never removed automatically.
namespace ckpt {

/// Whether ckpt itself writes something at this path below the directory; of a folder with a slash at its end.
using OwnName = std::function<bool(std::string_view path)>;

/// The files in `directory` that are not its own, by name relative to it; folders end in a slash. Temporary files
/// of a dead process are ours; empty folders are ignored. `below`: only the contents of this folder
/// ("shards/optim").
/// errors  io
Result<std::vector<std::string>> find_strays(Io& io, const std::string& directory, const OwnName& own,
                                             std::string_view below = {});

/// "it also holds a, b, c and 2 more"
std::string strays_text(const std::vector<std::string>& strays);

}  // namespace ckpt
