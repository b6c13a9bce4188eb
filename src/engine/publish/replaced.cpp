#include "engine/publish/replaced.hpp"
#include "engine/io/stat_if_present.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "engine/publish/leftover.hpp"
#include "format/text/name_list.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kOthersShown = 8;

tl::unexpected<Error> not_replaceable(const std::string& path, const std::string& reason, std::string hint) {
  return fail({.code = Errc::usage,
               .message = fmt::format("{}: cannot overwrite: {}", path, reason),
               .file = path,
               .hint = std::move(hint)});
}

/// Compares a tree with the list of its own files.
class Accounting {
 public:
  Accounting(Io& io, const std::string& path, std::vector<std::string> own) : io_(io), path_(path) {
    for (std::string& file : own) {
      for (std::string& folder : folders_of(file)) folders_.insert(std::move(folder));
      own_.insert(std::move(file));
    }
  }

  Result<std::vector<OldFile>> run() {
    for (pending_.emplace_back(); !pending_.empty();) {
      const std::string folder = std::move(pending_.back());
      pending_.pop_back();
      CKPT_TRY(const auto entries, io_.list(join_path(path_, folder)));
      for (const DirEntry& entry : entries) CKPT_CHECK(look_at(entry, join_path(folder, entry.name)));
    }
    if (strays_.empty()) return std::move(files_);
    std::ranges::sort(strays_);
    return not_replaceable(
        path_, fmt::format("it also holds {}, not part of the checkpoint", name_list(strays_, kOthersShown)),
        "choose another target, or move the other files away");
  }

 private:
  Result<> look_at(const DirEntry& entry, const std::string& relative) {
    const bool is_folder = !entry.is_link && entry.kind == FileInfo::Kind::directory;
    if (is_folder && folders_.contains(relative)) {
      pending_.push_back(relative);
    } else if (is_folder) {
      CKPT_TRY(const auto inside, io_.list(join_path(path_, relative)));
      if (!inside.empty()) strays_.push_back(relative + "/");
    } else if (!own_.contains(relative)) {
      strays_.push_back(relative);
    } else if (entry.is_link) {
      files_.push_back({.path = relative});
    } else {
      CKPT_TRY(const FileInfo info, io_.stat(join_path(path_, relative)));
      files_.push_back({.path = relative, .bytes = info.bytes});
    }
    return {};
  }

  Io& io_;
  const std::string& path_;
  std::unordered_set<std::string> own_;
  std::unordered_set<std::string> folders_;  // folders of own files
  std::vector<std::string> pending_;
  std::vector<std::string> strays_;
  std::vector<OldFile> files_;
};

/// A file that is gone counts as removed, whatever the system call returned.
Result<> settle_removal(Io& io, const std::string& path, Result<> removed) {
  if (removed) return removed;
  CKPT_TRY(const auto there, stat_if_present(io, path));
  return there ? removed : Result<>();
}

/// Innermost first. Fails if anything but folders is left. A listing may be stale.
Result<> remove_folders(Io& io, const std::string& path) {
  std::vector<std::string> folders{path};
  for (std::size_t i = 0; i < folders.size(); ++i) {
    const auto entries = io.list(folders[i]);
    if (!entries && entries.error().code == Errc::not_found) continue;
    if (!entries) return fail(entries.error());
    for (const DirEntry& entry : *entries) {
      if (!entry.is_link && entry.kind == FileInfo::Kind::directory)
        folders.push_back(join_path(folders[i], entry.name));
    }
  }
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder)
    CKPT_CHECK(settle_removal(io, *folder, io.remove_dir(*folder)));
  return {};
}

}  // namespace

Result<std::vector<OldFile>> account_for(Io& io, const std::string& path, const OwnFiles& own) {
  CKPT_TRY(const FileInfo info, io.stat(path));
  constexpr std::string_view kHint = "choose another target";
  if (info.kind == FileInfo::Kind::other)
    return not_replaceable(path, "neither a file nor a directory", std::string(kHint));
  const bool is_file = info.kind == FileInfo::Kind::file;
  if (!is_file) {
    CKPT_TRY(const auto entries, io.list(path));
    if (entries.empty()) return std::vector<OldFile>();
  }
  if (!own && !is_file) return not_replaceable(path, "a directory that is not a checkpoint", std::string(kHint));
  std::vector<std::string> files;
  if (own) {
    CKPT_TRY(files, own(path));
  }
  if (is_file) return std::vector<OldFile>{{.path = {}, .bytes = info.bytes}};
  return Accounting(io, path, std::move(files)).run();
}

Result<> remove_old(Io& io, const std::string& path, const std::vector<OldFile>& files) {
  if (io.unlink(path)) return {};  // a file or a link; a directory refuses
  for (const OldFile& file : files) {
    const std::string name = join_path(path, file.path);
    CKPT_CHECK(settle_removal(io, name, io.unlink(name)));
  }
  return remove_folders(io, path);
}

}  // namespace ckpt
