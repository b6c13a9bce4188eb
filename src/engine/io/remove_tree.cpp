#include "engine/io/remove_tree.hpp"

#include <string>

#include "engine/io/hold_directory.hpp"
#include "engine/io/stat_if_present.hpp"

namespace ckpt {
namespace {

/// What is mounted there is not part of the tree.
Result<> refuse_mount(const std::string& path, const FileInfo& info) {
  if (!info.is_mount_point) return {};
  return fail({.code = Errc::refused,
               .message = path + ": not removed, because it is a mount point",
               .file = path,
               .hint = "unmount it first; its contents stay"});
}

/// All that is below a directory.
Result<> empty_tree(Io& io, const std::string& path) {
  // Found, listed and removed from one descriptor: concurrent renames inside it cannot redirect it.
  CKPT_TRY(const auto held, hold_directory(io, path, {.reads = true}));
  struct Item {
    std::string path;
    bool emptied = false;
    std::unique_ptr<HeldDirectory> held{};  // so that its contents need not be resolved from the root
  };
  constexpr std::size_t kMostHeld = 16;  // each is an open file
  std::size_t held_now = 0;
  std::vector<Item> pending;
  const auto list_into = [&](const std::string& folder) -> Result<> {
    CKPT_TRY(const auto entries, io.list(folder));
    for (const DirEntry& entry : entries) pending.push_back({.path = join_path(folder, entry.name)});
    return {};
  };
  CKPT_CHECK(list_into(path));
  while (!pending.empty()) {
    const std::string current = pending.back().path;
    if (pending.back().emptied) {
      if (pending.back().held) --held_now;
      pending.pop_back();
      CKPT_CHECK(io.remove_dir(current));
      continue;
    }
    auto unlinked = io.unlink(current);
    std::optional<FileInfo> left;
    if (!unlinked) {
      CKPT_TRY(left, stat_if_present(io, current));
    }
    if (!left) {  // unlinked, or already gone: a listing may be stale
      pending.pop_back();
      continue;
    }
    if (left->kind != FileInfo::Kind::directory) return unlinked;
    CKPT_CHECK(refuse_mount(current, *left));
    pending.back().emptied = true;
    if (held_now < kMostHeld) {
      CKPT_TRY(pending.back().held, hold_directory(io, current, {.reads = true}));
      ++held_now;
    }
    CKPT_CHECK(list_into(current));
  }
  return {};
}

}  // namespace

Result<> remove_tree(Io& io, const std::string& path) {
  // A name is unlinked before anything else is tried, which removes a link and never follows it.
  auto unlinked = io.unlink(path);
  if (unlinked) return {};
  CKPT_TRY(const auto info, stat_if_present(io, path));
  if (!info) return {};
  if (info->kind != FileInfo::Kind::directory) return unlinked;
  CKPT_CHECK(refuse_mount(path, *info));
  auto emptied = empty_tree(io, path);
  if (!emptied && emptied.error().code != Errc::not_found) return emptied;
  auto removed = io.remove_dir(path);
  return !removed && removed.error().code == Errc::not_found ? Result<>() : removed;
}

}  // namespace ckpt
