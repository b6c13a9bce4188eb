#include "convert/archived.hpp"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/run/checks.hpp"
#include "format/model/contained_index.hpp"

namespace ckpt {

void place_in_archive(Map& map, const std::string& root, const Archive& archive) {
  std::vector<MapFile> files{{.path = "", .bytes = archive.info.bytes, .mtime_ns = archive.info.mtime_ns}};
  std::vector<Container> containers;
  for (std::uint32_t i = 0; i < map.files.size(); ++i) {
    const auto inside = archive.below(path_of(map, i, root));
    const auto member = inside ? archive.members.find(*inside) : archive.members.end();
    if (member != archive.members.end()) {
      containers.push_back({.file = 0, .begin = member->second.range.begin});
    } else {
      containers.push_back({.file = static_cast<std::uint32_t>(files.size())});
      files.push_back(std::move(map.files[i]));
    }
  }
  if (map.whole && !containers.empty()) {
    map.whole = [whole = std::move(map.whole), begin = containers.front().begin]() -> Result<WholeObject> {
      CKPT_TRY(WholeObject object, whole());
      for (auto& [name, storage] : object.storages) {
        storage.begin += begin;
        storage.end += begin;
      }
      return object;
    };
  }
  map.index = std::make_shared<ContainedIndex>(std::move(map.index), std::move(containers));
  map.files = std::move(files);
  map.collection = false;
}

}  // namespace ckpt
