#include "catalog/trash/strays.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/store/run_directory.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/own_names.hpp"
#include "format/universal/seal.hpp"

namespace ckpt::catalog {
namespace {

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
  return ckpt::find_strays(io, checkpoint, universal::is_own_name, below);
}

Result<std::vector<std::string>> find_strays_in_foreign(Io& io, const std::string& checkpoint) {
  std::vector<std::string> out;
  std::vector<std::string> folders{""};  // below the checkpoint
  while (!folders.empty()) {
    const std::string folder = std::move(folders.back());
    folders.pop_back();
    CKPT_TRY(const auto entries, io.list(join_path(checkpoint, folder)));
    for (const DirEntry& entry : entries) {
      if (entry.is_link || entry.kind != FileInfo::Kind::directory) continue;
      std::string below = join_path(folder, entry.name);
      const std::string manifest = join_path(join_path(checkpoint, below), universal::kManifestPath);
      const bool is_stray = entry.name == ".git" || entry.name == ".ckpt" || CheckpointName::parse(entry.name) ||
                            begins_as_manifest(io, manifest);
      if (is_stray) {
        out.push_back(below + "/");
      } else {
        folders.push_back(std::move(below));
      }
    }
  }
  return out;
}

Result<std::vector<std::string>> find_strays_in_optimizer(Io& io, const std::string& files) {
  return ckpt::find_strays(io, files, [](std::string_view path) {
    return universal::is_own_name(join_path(universal::kOptimizerFolder, path));
  });
}

Result<std::vector<std::string>> find_strays_in_the_way(Io& io, const std::string& checkpoint, bool foreign,
                                                        bool whole) {
  CKPT_TRY(const FileInfo info, io.stat(checkpoint));
  if (info.kind != FileInfo::Kind::directory) return std::vector<std::string>();
  if (foreign) return find_strays_in_foreign(io, checkpoint);
  return find_strays(io, checkpoint, whole ? std::string_view() : universal::kOptimizerFolder);
}

Result<> check_no_strays(Result<std::vector<std::string>> found) {
  CKPT_TRY(const std::vector<std::string> strays, std::move(found));
  return strays.empty() ? Result<>() : fail(Errc::not_done, strays_text(strays));
}

}  // namespace ckpt::catalog
