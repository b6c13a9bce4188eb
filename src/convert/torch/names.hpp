#pragma once

#include <span>
#include <string>
#include <vector>

#include "format/result.hpp"
#include "format/value.hpp"

namespace ckpt::torch {

/// Something that needs a name of its own in a map.
struct Nameless {
  std::string prefix{};  ///< "" or "FILE/"
  Path path{};           ///< not empty
};

/// One name each, in order: the prefix, then the dotted path as it stands. Where names collide, in all of them '%'
/// becomes %25 and a dot inside a path element %2E; bytes that are not UTF-8 become %XX.
///
/// corrupt: two have one path (an index 0 and a key "0" do not differ in a name)
Result<std::vector<std::string>> unique_names(std::span<const Nameless> items);

}  // namespace ckpt::torch
