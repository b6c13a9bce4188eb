#include "engine/publish/strays.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/io/replace_file.hpp"
#include "engine/store/recycle.hpp"
#include "format/text/name_list.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kStraysShown = 3;

/// The name of the file that a temporary one becomes.
std::string_view without_temporary(std::string_view path) {
  for (const std::string_view suffix : {kTemporarySuffix, kUncheckedSuffix}) {
    if (path.ends_with(suffix)) return path.substr(0, path.size() - suffix.size());
  }
  return path;
}

}  // namespace

Result<std::vector<std::string>> find_strays(Io& io, const std::string& directory, const OwnName& own,
                                             std::string_view below) {
  std::vector<std::string> out;
  std::vector<std::string> pending{std::string(below)};
  while (!pending.empty()) {
    const std::string folder = std::move(pending.back());
    pending.pop_back();
    const auto entries = io.list(folder.empty() ? directory : join_path(directory, folder));
    if (!entries && entries.error().code == Errc::not_found) continue;
    if (!entries) return fail(entries.error());
    for (const DirEntry& entry : *entries) {
      const std::string path = folder.empty() ? entry.name : join_path(folder, entry.name);
      const bool is_folder = !entry.is_link && entry.kind == FileInfo::Kind::directory;
      if (is_folder && own(path + "/")) {
        pending.push_back(path);
      } else if (is_folder) {
        CKPT_TRY(const auto inside, io.list(join_path(directory, path)));
        if (!inside.empty()) out.push_back(path + "/");
      } else if (!own(without_temporary(path))) {
        out.push_back(path);
      }
    }
  }
  std::ranges::sort(out);
  return out;
}

std::string strays_text(const std::vector<std::string>& strays) {
  return "it also holds " + name_list(strays, kStraysShown);
}

}  // namespace ckpt
