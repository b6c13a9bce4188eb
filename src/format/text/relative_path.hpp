#pragma once

#include <cstddef>
#include <string_view>

namespace ckpt {

/// True when a path found inside a checkpoint stays below its root: relative, no "..", no empty or "." part, no NUL.
inline bool stays_inside(std::string_view relative) {
  if (relative.find('\0') != std::string_view::npos) return false;
  for (;;) {
    const std::size_t slash = relative.find('/');
    const std::string_view part = relative.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    relative.remove_prefix(slash + 1);
  }
}

}  // namespace ckpt
