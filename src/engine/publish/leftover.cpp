#include "engine/publish/leftover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "engine/io/hold_directory.hpp"
#include "engine/io/remove_tree.hpp"
#include "engine/io/stat_if_present.hpp"
#include "engine/publish/publish.hpp"
#include "engine/store/run_directory.hpp"
#include "format/checked.hpp"
#include "format/universal/own_names.hpp"

namespace ckpt {
namespace {

Error other_host(const std::string& partial) {
  return {.code = Errc::locked,
          .message = partial + ": left over, or being written by another host",
          .file = partial,
          .hint = fmt::format("locks here do not reach every host: ckpt repair {} --apply removes it, once nothing has "
                              "changed in it for 10 minutes",
                              partial)};
}

/// The lock of a leftover. Null: its owner has just removed it.
Result<std::unique_ptr<HeldLock>> lock_leftover(Io& io, const std::string& partial) {
  auto held = io.lock(partial, LockMode::exclusive);
  if (held) return held;
  Error error = std::move(held).error();
  if (error.code == Errc::not_found) return std::unique_ptr<HeldLock>();
  if (error.code == Errc::locked || error.code == Errc::unsupported) {
    error.message = partial + (error.code == Errc::locked ? ": being written by another process"
                                                          : ": left over, or being written by another process");
    error.hint = error.code == Errc::locked ? "wait for it to end" : "remove it by hand if no process writes it";
    error.code = Errc::locked;
  }
  return fail(std::move(error));
}

/// A name that leads elsewhere is not ours, and is never written through.
Result<bool> is_link(Io& io, const std::string& path) {
  CKPT_TRY(const auto entries, io.list(parent_path(path)));
  const std::string name = base_name(path);
  return std::any_of(entries.begin(), entries.end(), [&](const DirEntry& e) { return e.is_link && e.name == name; });
}

/// The leftover holds only files of ckpt.
Result<> check_own(Io& io, const std::string& partial, const OwnName& own) {
  CKPT_TRY(const FileInfo info, io.stat(partial));
  CKPT_TRY(const bool elsewhere, is_link(io, partial));
  if (elsewhere || info.kind != FileInfo::Kind::directory) return {};
  CKPT_TRY(const std::vector<std::string> strays, find_strays(io, partial, own));
  if (strays.empty()) return {};
  return fail({.code = Errc::usage,
               .message = fmt::format("{}: {}, which ckpt did not put there", partial, strays_text(strays)),
               .file = partial,
               .hint = "move it away, then try again"});
}

/// The caller holds its lock. The record goes first: a half-removed leftover must not be resumed.
Result<> remove_leftover(Io& io, const std::string& partial) {
  CKPT_CHECK(remove_record(io, record_path(partial)));
  return remove_tree(io, partial);
}

bool has_room(const FileInfo& info, const TargetFile& file) {
  return info.kind == FileInfo::Kind::file &&
         (info.bytes == file.bytes || info.bytes == round_up(file.bytes, kAlignment));
}

/// Whether it is readable by users who may not read the new target.
bool is_more_readable(const FileInfo& info, std::uint32_t readers) {
  return (info.permissions & ~readers) != 0;
}

/// Keeps the planned files and their folders, and removes our other files.
Result<> tidy(Io& io, const std::string& partial, const std::vector<TargetFile>& files, std::uint32_t readers,
              Leftover& out) {
  std::unordered_map<std::string, std::size_t> planned;
  std::set<std::string> folders;
  for (std::size_t i = 0; i < files.size(); ++i) {
    planned.emplace(files[i].path, i);
    for (std::string& folder : folders_of(files[i].path)) folders.insert(std::move(folder));
  }
  std::vector<std::string> pending{""};
  while (!pending.empty()) {
    const std::string folder = std::move(pending.back());
    pending.pop_back();
    CKPT_TRY(const auto entries, io.list(join_path(partial, folder)));
    for (const DirEntry& entry : entries) {
      const std::string relative = join_path(folder, entry.name);
      const std::string path = join_path(partial, relative);
      if (!entry.is_link && entry.kind == FileInfo::Kind::directory && folders.contains(relative)) {
        out.folders.insert(relative);
        pending.push_back(relative);
        continue;
      }
      const auto file = planned.find(relative);
      if (file != planned.end() && !entry.is_link) {
        CKPT_TRY(const FileInfo info, io.stat(path));
        out.kept[file->second] = has_room(info, files[file->second]) && !is_more_readable(info, readers);
        if (out.kept[file->second]) continue;
      }
      CKPT_CHECK(remove_tree(io, path));
    }
  }
  return {};
}

}  // namespace

Result<> sweep_leftover(Io& io, const std::string& partial, const OwnName& own, bool watched) {
  CKPT_TRY(const auto leftover, stat_if_present(io, partial));
  if (!leftover) return {};
  const bool reaches = io.lock_scope(partial).reach == LockReach::everyone;
  if (!reaches && !watched) return fail(other_host(partial));
  auto held = lock_leftover(io, partial);
  const bool vanished = held && !*held;
  if (vanished) return {};
  if (!held) {
    // Without locks, watching covers this host's processes too.
    const auto lock = io.lock(partial, LockMode::shared);
    const bool without_locks = !lock && lock.error().code == Errc::unsupported;
    if (reaches || !without_locks) return fail(std::move(held).error());
  }
  if (own) CKPT_CHECK(check_own(io, partial, own));
  return remove_leftover(io, partial);
}

std::vector<std::string> folders_of(std::string_view relative) {
  std::vector<std::string> folders;
  for (std::size_t slash = relative.find('/'); slash != std::string_view::npos; slash = relative.find('/', slash + 1)) {
    folders.emplace_back(relative.substr(0, slash));
  }
  return folders;
}

Result<std::optional<Leftover>> take_over(Io& io, const std::string& partial, bool directory,
                                          const std::vector<TargetFile>& files, RecordKey key, const OwnName& own,
                                          std::uint32_t readers) {
  CKPT_TRY(const auto found, stat_if_present(io, partial));
  if (!found) return std::nullopt;
  Leftover out;
  if (io.lock_scope(partial).reach == LockReach::host) return fail(other_host(partial));
  CKPT_TRY(out.lock, lock_leftover(io, partial));
  if (!out.lock) return std::nullopt;
  CKPT_CHECK(check_own(io, partial, own));
  CKPT_TRY(out.identity, io.stat(partial));
  key.inode = out.identity.inode;
  CKPT_TRY(out.leaves, read_record(io, record_path(partial), key));
  const auto wanted = directory ? FileInfo::Kind::directory : FileInfo::Kind::file;
  CKPT_TRY(const bool elsewhere, is_link(io, partial));
  const bool usable =
      !elsewhere && out.identity.kind == wanted && !out.leaves.empty() && !is_more_readable(out.identity, readers);
  if (!usable || (!directory && !has_room(out.identity, files.front()))) {
    CKPT_CHECK(remove_leftover(io, partial));
    return std::nullopt;
  }
  out.kept.resize(files.size(), !directory);
  if (directory) CKPT_CHECK(tidy(io, partial, files, readers, out));
  std::size_t leaf = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const std::size_t end = leaf + static_cast<std::size_t>(files[i].leaf_count()); leaf < end; ++leaf) {
      if (!out.kept[i]) out.leaves[leaf] = {};
    }
  }
  return out;
}

Result<SweptPartials> sweep_partials(Io& io, const std::string& directory) {
  SweptPartials out;
  CKPT_TRY(const auto entries, io.list(directory));
  for (const DirEntry& entry : entries) {
    const std::string path = join_path(directory, entry.name);
    std::string partial;
    const bool record = is_record(path, partial);
    if (!is_save_partial(record ? base_name(partial) : entry.name)) continue;
    if (record) {  // removed with its partial, or alone if that is gone
      CKPT_TRY(const auto there, stat_if_present(io, partial));
      if (!there) CKPT_CHECK(remove_record(io, path));
      continue;
    }
    auto done = sweep_leftover(io, path, universal::is_own_name);
    if (done) {
      out.removed.push_back(entry.name);
    } else if (done.error().code == Errc::usage) {
      out.kept.push_back(std::move(done).error());
    } else if (done.error().code != Errc::locked) {
      return fail(std::move(done).error());
    }
  }
  return out;
}

}  // namespace ckpt
