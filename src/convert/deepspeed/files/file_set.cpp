#include "convert/deepspeed/files/file_set.hpp"

#include <utility>

#include "convert/metadata_memory.hpp"
#include "format/hash.hpp"

namespace ckpt::deepspeed {

FileSet::FileSet(Io& io, std::string root, const ReadOptions& options, MapBuilder& builder)
    : io_(io), root_(std::move(root)), user_rules_(options.rules), builder_(builder) {
  budget_ = pickle_budget(options.metadata_limit);
}

Result<StateFile> FileSet::open(const std::string& path) {
  std::vector<MapFile>& files = builder_.map().files;
  CKPT_TRY(StateFile file, StateFile::open(io_, root_, path, static_cast<std::uint32_t>(files.size()), budget_));
  files.push_back(file.info());
  hashes_.emplace(path, file.archive().metadata_hash);
  folders_.emplace(path, file.archive().folder);
  return file;
}

Result<std::uint32_t> FileSet::add_raw(const std::string& path) {
  const auto info = io_.stat(join_path(root_, path));
  if (!info) {
    if (info.error().code != Errc::not_found) return fail(with_file(info.error(), path));
    return fail({.code = Errc::incomplete,
                 .message = path + ": the file is missing",
                 .file = path,
                 .hint = "each rank writes its own files: copy the missing ones from the nodes that wrote them"});
  }
  if (info->kind != FileInfo::Kind::file) {
    return fail({.code = Errc::refused, .message = path + ": not a plain file", .file = path});
  }
  std::vector<MapFile>& files = builder_.map().files;
  files.push_back({path, info->bytes, info->mtime_ns});
  return static_cast<std::uint32_t>(files.size() - 1);
}

Result<> FileSet::check_names() const {
  constexpr std::string_view kSuffix = ".pt";
  for (const auto& [path, folder] : folders_) {
    // Files that were written to a stream, or that other tools wrote, are called otherwise.
    if (!folder.ends_with("_states")) continue;
    const std::string name = base_name(path);
    // FastPersist adds the number of its writer after the suffix.
    const std::size_t end = name.rfind(kSuffix);
    if (std::string_view(name).substr(0, end) == folder) continue;
    const std::string full = join_path(root_, path);
    return fail({.code = Errc::corrupt,
                 .message = full + ": this file was saved as " + folder + ".pt",
                 .file = full,
                 .hint = "files were renamed, or one was copied over another: copy it again from where it came"});
  }
  return {};
}

std::string FileSet::metadata_hash() const {
  Hasher hasher;
  for (const auto& [path, hash] : hashes_) {
    hasher.update(path);
    hasher.update(std::as_bytes(std::span(hash.bytes)));
  }
  return hasher.digest().hex();
}

}  // namespace ckpt::deepspeed
