#pragma once

#include <string>
#include <vector>

#include "convert/format.hpp"

namespace ckpt {

/// Files next to the files of a checkpoint that are not part of it.
struct Beside {
  std::vector<Finding> findings{};      ///< files that hold data, other checkpoints in folders
  std::vector<std::string> settings{};  ///< files that describe the model: config.json, the tokenizer's
};

/// Looks in every folder that holds a file of the map, and in folders below the root that hold none. Reads listings and
/// first bytes, of a bounded number of files.
///
/// root   directory of the map's files
/// errors as Io::list of a folder that holds files of the map
Result<Beside> find_beside(Io& io, const std::string& root, const Format& format, const Map& map);

}  // namespace ckpt
