#pragma once

#include <string>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Creates a second name for a file. Only Ios over a file system can; others
/// fail.
class HardLinks {
 public:
  virtual ~HardLinks() = default;
  /// Symbolic links are followed. target_exists; `unsupported`: another file system, one without links, too many of
  /// them, a file of another user
  virtual Result<> link(const std::string& from, const std::string& to) = 0;
};

/// errors  as HardLinks::link; unsupported: this Io cannot
Result<> link_file(Io& io, const std::string& from, const std::string& to);

}  // namespace ckpt
