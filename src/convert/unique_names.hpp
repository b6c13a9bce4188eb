#pragma once

#include <span>
#include <string>
#include <vector>

#include "format/model/value.hpp"
#include "format/result.hpp"

namespace ckpt {

/// An entry that needs a unique name in a map.
struct Nameless {
  std::string prefix{};  ///< "" or "FILE/"
  Path path{};           ///< not empty
};

/// One name each, in order: the prefix, then the dotted path. Where names collide, in all of them '%' becomes %25 and a
/// dot inside a path element %2E; bytes that are not UTF-8 become %XX. If that does not distinguish the index 1 from
/// the key "1", the key becomes %31.
///
/// corrupt: two have one path
Result<std::vector<std::string>> unique_names(std::span<const Nameless> items);

}  // namespace ckpt
