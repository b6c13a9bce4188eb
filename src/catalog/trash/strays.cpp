#include "catalog/trash/strays.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <utility>

#include "catalog/index/entry.hpp"
#include "engine/replace_file.hpp"
#include "engine/run_directory.hpp"
#include "format/manifest.hpp"
#include "format/seal.hpp"
#include "format/sums.hpp"

namespace ckpt::catalog {
namespace {

using universal::FileClass;
using universal::FileKey;

constexpr std::size_t kNamesShown = 3;
constexpr std::array<std::string_view, 6> kFolders{"index",  "blobs",          kMarksDirectory,
                                                   "shards", "shards/weights", "shards/optim"};

/// The number that a text begins with, which is cut off.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  std::uint32_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return out;
}

/// Whether a path is one that a FileKey has.
bool is_of_table(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  FileKey key;
  if (const auto writer = take_number(name)) key.writer = *writer;
  if (name.starts_with('-')) {
    name.remove_prefix(1);
    if (const auto volume = take_number(name)) key.volume = *volume;
  }
  for (std::uint32_t i = 0; i < universal::kClassCount; ++i) {
    key.file_class = static_cast<FileClass>(i);
    if (key.path() == path) return true;
  }
  return false;
}

bool is_mark(std::string_view path) {
  std::string_view name = path;
  if (!name.starts_with(kMarksDirectory) || !name.ends_with(".json")) return false;
  name.remove_prefix(kMarksDirectory.size() + 1);
  return name == kStatisticsName || is_mark_name(name);
}

bool is_own(std::string_view path) {
  if (path.ends_with(kTemporarySuffix)) path.remove_suffix(kTemporarySuffix.size());
  return path == universal::kManifestPath || path == universal::kManifestCopyPath || path == universal::kSumsPath ||
         is_of_table(path) || is_mark(path);
}

bool begins_as_manifest(Io& io, const std::string& path) {
  const auto file = io.open(path, {});
  if (!file) return false;
  std::string text(universal::kManifestBegin.size(), '\0');
  const auto read = io.read_at(*file, 0, std::as_writable_bytes(std::span(text)));
  static_cast<void>(io.close(*file));
  return read && text == universal::kManifestBegin;
}

}  // namespace

Result<std::vector<std::string>> find_strays(Io& io, const std::string& checkpoint, std::string_view below) {
  std::vector<std::string> out;
  std::vector<std::string> pending{std::string(below)};
  while (!pending.empty()) {
    const std::string folder = std::move(pending.back());
    pending.pop_back();
    const auto entries = io.list(folder.empty() ? checkpoint : join_path(checkpoint, folder));
    if (!entries && entries.error().code == Errc::not_found) continue;
    if (!entries) return fail(entries.error());
    for (const DirEntry& entry : *entries) {
      const std::string path = folder.empty() ? entry.name : join_path(folder, entry.name);
      const bool is_folder = !entry.is_link && entry.kind == FileInfo::Kind::directory;
      if (is_folder && std::ranges::count(kFolders, path) != 0) {
        pending.push_back(path);
      } else if (is_folder) {
        CKPT_TRY(const auto inside, io.list(join_path(checkpoint, path)));
        if (!inside.empty()) out.push_back(path + "/");
      } else if (!is_own(path)) {
        out.push_back(path);
      }
    }
  }
  std::ranges::sort(out);
  return out;
}

Result<std::vector<std::string>> find_strays_in_foreign(Io& io, const std::string& checkpoint) {
  std::vector<std::string> out;
  CKPT_TRY(const auto entries, io.list(checkpoint));
  for (const DirEntry& entry : entries) {
    if (entry.is_link || entry.kind != FileInfo::Kind::directory) continue;
    const std::string manifest = join_path(join_path(checkpoint, entry.name), universal::kManifestPath);
    if (entry.name == ".git" || entry.name == ".ckpt" || CheckpointName::parse(entry.name) ||
        begins_as_manifest(io, manifest))
      out.push_back(entry.name + "/");
  }
  return out;
}

std::string strays_text(const std::vector<std::string>& strays) {
  const std::size_t shown = std::min(strays.size(), kNamesShown);
  const std::size_t more = strays.size() - shown;
  return fmt::format("it also holds {}{}",
                     fmt::join(strays.begin(), strays.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     more == 0 ? "" : fmt::format(" and {} more", more));
}

Result<> check_no_strays(Result<std::vector<std::string>> found) {
  CKPT_TRY(const std::vector<std::string> strays, std::move(found));
  return strays.empty() ? Result<>() : fail(Errc::not_done, strays_text(strays));
}

}  // namespace ckpt::catalog
