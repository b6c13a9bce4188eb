#include "convert/identity.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace ckpt {
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
