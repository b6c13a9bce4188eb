#include "catalog/scan/own_links.hpp"

#include <utility>

#include "catalog/scan/entry.hpp"
#include "catalog/scan/virtual_links.hpp"
#include "format/universal/own_names.hpp"

namespace ckpt::catalog {

std::vector<FoundLink> find_own_links(Io& io, const std::string& store, const OwnPlace& place) {
  std::vector<FoundLink> out;
  if (place.is_virtual) out = find_virtual_links(io, store, place.run, place.name);
  const std::string checkpoint = join_path(run_path(store, place.run), place.name);
  std::vector<std::string> folders{""};
  while (!folders.empty()) {
    const std::string folder = std::move(folders.back());
    folders.pop_back();
    const auto entries = io.list(folder.empty() ? checkpoint : join_path(checkpoint, folder));
    if (!entries) {
      if (entries.error().code != Errc::not_found)
        out.push_back({.run = place.run, .path = join_path(place.name, folder), .unreadable = true});
      continue;
    }
    for (const DirEntry& entry : *entries) {
      std::string path = join_path(folder, entry.name);
      if (entry.is_link) {
        out.push_back({.run = place.run, .holder = place.name, .path = std::move(path)});
      } else if (entry.kind == FileInfo::Kind::directory && path != kMarksDirectory &&
                 universal::is_own_name(path + "/")) {
        folders.push_back(std::move(path));
      }
    }
  }
  return out;
}

}  // namespace ckpt::catalog
