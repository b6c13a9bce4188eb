#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "format/result.hpp"

/// What replacing a checkpoint removes. For publish.hpp, which replaces, and for listing it beforehand.
namespace ckpt {

/// A file that a replacement removes.
struct OldFile {
  std::string path;         ///< relative to the target; "" = the target itself
  std::uint64_t bytes = 0;  ///< 0 of a link
};

/// The paths, relative to `path`, that belong to the checkpoint there. They need not all be there.
/// errors  usage: no checkpoint is there, or it must not go
using OwnFiles = std::function<Result<std::vector<std::string>>(const std::string& path)>;

/// Every file at `path`, if all are among its own files. A link counts as a file and is not followed; empty folders are
/// ignored.
/// errors  usage: there are other files, named in the message; those of `own`
Result<std::vector<OldFile>> account_for(Io& io, const std::string& path, const OwnFiles& own);

/// Removes these files below `path` and the folders that become empty, `path` last; a link at `path` is removed without
/// following it. Other files stay, and are an error.
Result<> remove_old(Io& io, const std::string& path, const std::vector<OldFile>& files);

}  // namespace ckpt
