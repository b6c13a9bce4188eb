#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/io.hpp"
#include "format/result.hpp"

/// What stands in a directory of ours that ckpt did not put there. Somebody may want it: it is never removed unasked.
namespace ckpt {

/// Whether ckpt makes something of this path below the directory; of a folder with a slash at its end.
using OwnName = std::function<bool(std::string_view path)>;

/// The files in `directory` that are not its own, by name; relative to it, a folder with a slash at its end. Temporary
/// files of a process that died are ours; empty folders count as nothing. `below`: only what lies in this folder
/// ("shards/optim").
/// errors  io
Result<std::vector<std::string>> find_strays(Io& io, const std::string& directory, const OwnName& own,
                                             std::string_view below = {});

/// "it also holds a, b, c and 2 more"
std::string strays_text(const std::vector<std::string>& strays);

}  // namespace ckpt
