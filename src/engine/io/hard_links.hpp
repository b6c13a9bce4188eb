#pragma once

#include <string>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// What some Ios can do beside: a file gets a second name. Of those that stand for something else than a file system
/// none can.
class HardLinks {
 public:
  virtual ~HardLinks() = default;
  /// Symbolic links are followed. target_exists; `unsupported`: another file system, one without links, too many of
  /// them, a file of somebody else
  virtual Result<> link(const std::string& from, const std::string& to) = 0;
};

/// errors  as HardLinks::link; unsupported: this Io cannot
Result<> link_file(Io& io, const std::string& from, const std::string& to);

}  // namespace ckpt
