#include "convert/format.hpp"

#include <algorithm>
#include <span>

namespace ckpt {

bool Place::has(std::string_view name) const {
  const auto at = std::lower_bound(entries.begin(), entries.end(), name,
                                   [](const DirEntry& entry, std::string_view n) { return entry.name < n; });
  return at != entries.end() && at->name == name;
}

void Place::read_first() {
  if (auto read = head("", kFirstBytes)) first = *std::move(read);
}

Result<std::string> Place::head(std::string_view relative, std::size_t bytes) const {
  if (relative.empty() && !first.empty() && bytes <= kFirstBytes) return first.substr(0, bytes);
  const std::string path = relative.empty() ? root : join_path(root, relative);
  // Asked before opening: opening a FIFO would wait for its writer.
  CKPT_TRY(const FileInfo info, io.stat(path));
  if (info.kind != FileInfo::Kind::file)
    return fail({.code = Errc::unsupported, .message = path + ": not a file", .file = path});
  CKPT_TRY(const FileHandle file, io.open(path, {}));
  std::string out(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, info.bytes)), '\0');
  auto read = io.read_at(file, 0, std::as_writable_bytes(std::span(out)));
  const auto closed = io.close(file);
  if (!read) return fail(std::move(read).error());
  if (!closed) return fail(closed.error());
  return out;
}

namespace {

std::vector<const MapFile*> files_by_path(const Map& map) {
  std::vector<const MapFile*> files;
  files.reserve(map.files.size());
  for (const MapFile& file : map.files) {
    if (!is_temporary(file)) files.push_back(&file);
  }
  std::sort(files.begin(), files.end(), [](const MapFile* a, const MapFile* b) { return a->path < b->path; });
  return files;
}

}  // namespace

Hash128 fingerprint(const Map& map) {
  const std::vector<const MapFile*> files = files_by_path(map);
  Hasher hasher;
  hasher.update_u64(files.size());
  for (const MapFile* file : files) {
    hasher.update_u64(file->path.size());
    hasher.update(file->path);
    hasher.update_u64(file->bytes);
    hasher.update_u64(static_cast<std::uint64_t>(file->mtime_ns));
  }
  hasher.update(map.metadata_hash);
  return hasher.digest();
}

Hash128 identity(const Map& map) {
  const Hash128 content = fingerprint(map);
  if (!map.hashes.leaves.empty()) return content;
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(content.bytes)));
  for (const MapFile* file : files_by_path(map)) {
    hasher.update_u64(file->inode);
    hasher.update_u64(static_cast<std::uint64_t>(file->ctime_ns));
  }
  return hasher.digest();
}

}  // namespace ckpt
