#include "catalog/scan/reference_marks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "engine/io/real_path.hpp"
#include "engine/publish/move_checkpoint.hpp"
#include "engine/store/inbox.hpp"
#include "engine/store/run_directory.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::catalog {
namespace {

/// The directories above an absolute path, from the root.
std::vector<std::string> directories_above(std::string_view path) {
  std::vector<std::string> out{"/"};
  for (std::size_t slash = path.find('/', 1); slash != path.npos; slash = path.find('/', slash + 1))
    out.emplace_back(path.substr(0, slash));
  return out;
}

/// The text of a mark: "ID INODE/INODE/... HOST", without HOST if every host may see the path.
struct Owner {
  std::string id{};
  std::vector<std::uint64_t> inodes{};  ///< of the directories above the path
  std::string host{};
};

std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(word.size() + 1, text.size()));
  return word;
}

Owner owner_of(const Mark& mark) {
  std::string_view rest = mark.text;
  Owner out{.id = std::string(take_word(rest))};
  std::string_view inodes = take_word(rest);
  out.host = std::string(rest);
  while (!inodes.empty()) {
    const auto inode = take_number<std::uint64_t>(inodes);
    if (!inode) return {};
    out.inodes.push_back(*inode);
    inodes.remove_prefix(std::min<std::size_t>(inodes.size(), 1));
  }
  return out;
}

bool is_local(Io& io, const std::string& directory) {
  return io.lock_scope(directory).reach == LockReach::everyone;
}

/// Whether this host sees the same contents in a directory as the host that made the mark.
bool sees_the_same(Io& io, const std::string& directory, const Owner& owner) {
  if (owner.host.empty()) return !is_local(io, directory);
  return is_local(io, directory) && owner.host == io.host().self().host;
}

enum class Presence : std::uint8_t { present, absent, unknown };

Presence look_for(Io& io, const std::string& directory, const std::string& path) {
  const auto info = io.stat(path);
  if (info) return Presence::present;
  if (info.error().code != Errc::not_found) return Presence::unknown;
  const auto entries = io.list(directory);  // a network's attributes may be from memory, a listing asks the server
  if (!entries) return Presence::unknown;
  const bool listed = std::ranges::find(*entries, base_name(path), &DirEntry::name) != entries->end();
  return listed ? Presence::unknown : Presence::absent;
}

/// Below directories that are the same as when the mark was made.
Presence find_owner(Io& io, const std::string& path, const Owner& owner) {
  const std::vector<std::string> above = directories_above(path);
  if (above.size() != owner.inodes.size()) return Presence::unknown;
  Presence next = Presence::present;
  std::size_t i = 0;
  for (; next == Presence::present && i < above.size(); ++i) {
    const auto info = io.stat(above[i]);
    if (!info || info->inode != owner.inodes[i]) return Presence::unknown;
    next = look_for(io, above[i], i + 1 < above.size() ? above[i + 1] : path);
  }
  return sees_the_same(io, above[i - 1], owner) ? next : Presence::unknown;
}

bool is_below(const std::string& path, const std::string& directory) {
  return path == directory || path.starts_with(directory + "/");
}

/// Whether a virtual checkpoint may refer to files in a directory.
bool may_refer(const universal::Manifest& manifest, const std::string& path, const std::string& directory) {
  const auto target = find_real_path(directory);
  if (!target || !*target) return true;
  return std::ranges::any_of(referenced_paths(manifest, path), [&](const std::string& file) {
    const auto real = find_real_path(file);
    return !real || (*real && is_below(**real, **target));
  });
}

}  // namespace

std::vector<std::string> referenced_paths(const universal::Manifest& manifest, const std::string& path) {
  std::vector<std::string> out;
  for (const universal::ReferencedSource& source : manifest.references) {
    const std::string base = source.path.starts_with('/') ? source.path : join_path(path, source.path);
    for (const universal::ReferencedFile& file : source.files)
      out.push_back(file.path.empty() ? base : join_path(base, file.path));
  }
  return out;
}

Result<Mark> reference_mark(Io& io, const std::string& path, const std::string& id) {
  std::vector<std::uint64_t> inodes;
  for (const std::string& directory : directories_above(path)) {
    CKPT_TRY(const FileInfo info, io.stat(directory));
    inodes.push_back(info.inode);
  }
  Mark mark{.kind = Mark::Kind::reference, .name = path, .text = fmt::format("{} {}", id, fmt::join(inodes, "/"))};
  if (is_local(io, parent_path(path))) mark.text += " " + io.host().self().host;
  if (auto file = mark_file(mark); !file)
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: no mark can refer to this path: {}", path, file.error().message),
                 .file = path,
                 .hint = "choose another path, or convert without --virtual"});
  return mark;
}

bool is_owner_gone(Io& io, const std::string& checkpoint, const Mark& mark) {
  if (!mark.name.starts_with('/')) return false;
  const Owner owner = owner_of(mark);
  switch (find_owner(io, mark.name, owner)) {
    case Presence::absent:
      return true;
    case Presence::unknown:
      return false;
    case Presence::present:
      break;
  }
  const auto manifest = read_manifest(io, mark.name);
  if (!manifest || manifest->id.hex() == owner.id) return false;
  return !may_refer(*manifest, mark.name, checkpoint);
}

std::vector<std::string> drop_ownerless(Io& io, const std::string& store, Entry& entry) {
  std::vector<std::string> out;
  const std::string path = entry.path(store);
  for (const Mark& mark : entry.marks) {
    if (mark.kind != Mark::Kind::reference || !is_owner_gone(io, path, mark)) continue;
    std::erase(entry.checkpoint.references, mark.name);
    out.push_back(mark.name);
  }
  return out;
}

Result<bool> remove_ownerless(Io& io, const std::string& checkpoint, const std::string& owner) {
  CKPT_TRY(const LockedCheckpoint held, lock_checkpoint(io, checkpoint));
  if (held.outcome != LockOutcome::free) return false;
  const std::string directory = marks_path(checkpoint);
  const Marks said = read_marks(io, directory);
  const bool is_gone = std::ranges::any_of(said.marks, [&](const Mark& mark) {
    return mark.kind == Mark::Kind::reference && mark.name == owner && is_owner_gone(io, checkpoint, mark);
  });
  if (!is_gone) return false;
  CKPT_TRY(const bool removed, remove_mark(io, directory, Mark::Kind::reference, owner, {}, Holding::ours));
  if (removed) drop_note(io, parent_path(checkpoint), base_name(checkpoint), "no reference " + owner);
  return removed;
}

std::string find_referrer(Io& io, const std::string& checkpoint) {
  for (const Mark& mark : read_marks(io, marks_path(checkpoint)).marks) {
    if (mark.kind == Mark::Kind::reference && !is_owner_gone(io, checkpoint, mark)) return mark.name;
  }
  return {};
}

}  // namespace ckpt::catalog
