#include "format/universal/own_names.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "format/text/parse_number.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/seal.hpp"
#include "format/universal/sums.hpp"

namespace ckpt::universal {
namespace {

constexpr std::string_view kMarksFolder = "marks/";
constexpr std::array<std::string_view, 6> kOwnFolders{"index/",  "blobs/",          kMarksFolder,
                                                      "shards/", "shards/weights/", "shards/optim/"};
constexpr std::array<std::string_view, 4> kOwnFiles{kManifestPath, kManifestCopyPath, kSumsPath,
                                                    "marks/save-statistics.json"};

/// Whether a file in marks/ is called as one of a kind that is known here.
bool is_mark_name(std::string_view name) {
  return name.ends_with(".json") && std::ranges::any_of(kMarkKinds, [&](std::string_view kind) {
           return name.starts_with(kind) && name.substr(kind.size()).starts_with('-');
         });
}

/// Whether a path is one that a FileKey has.
bool is_of_table(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  FileKey key;
  if (const auto writer = take_number<std::uint32_t>(name)) key.writer = *writer;
  if (name.starts_with('-')) {
    name.remove_prefix(1);
    if (const auto volume = take_number<std::uint32_t>(name)) key.volume = *volume;
  }
  for (std::uint32_t i = 0; i < kClassCount; ++i) {
    key.file_class = static_cast<FileClass>(i);
    if (key.path() == path) return true;
  }
  return false;
}

}  // namespace

bool is_own_name(std::string_view path) {
  if (path.ends_with('/')) return std::ranges::find(kOwnFolders, path) != kOwnFolders.end();
  if (std::ranges::find(kOwnFiles, path) != kOwnFiles.end() || is_of_table(path)) return true;
  return path.starts_with(kMarksFolder) && is_mark_name(path.substr(kMarksFolder.size()));
}

}  // namespace ckpt::universal
