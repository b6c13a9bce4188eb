#include "convert/nearest_path.hpp"

#include <vector>

#include "format/text/nearest.hpp"

namespace ckpt {

std::string nearest_path(Io& io, const std::string& path) {
  std::string missing = path.substr(0, path.find_last_not_of('/') + 1);
  std::string rest;
  for (;;) {
    const std::string above = parent_path(missing);
    const std::string name = base_name(missing);
    if (name.empty() || above == missing) return {};
    if (!io.stat(above)) {
      rest = rest.empty() ? name : join_path(name, rest);
      missing = above;
      continue;
    }
    const auto entries = io.list(above);
    if (!entries) return {};
    std::vector<std::string> names;
    for (const DirEntry& entry : *entries)
      if (entry.name != name) names.push_back(entry.name);  // a link that leads nowhere has the name itself
    const auto near = nearest(name, names);
    if (!near) return {};
    std::string found = missing.find('/') == std::string::npos ? *near : join_path(above, *near);
    const std::string whole = rest.empty() ? found : join_path(found, rest);
    return io.stat(whole) ? whole : found;
  }
}

}  // namespace ckpt
