#include "engine/io/shared_bytes.hpp"

#include <vector>

namespace ckpt {
namespace {

constexpr std::uint64_t kMostFiles = 20'000;  // a plan must not take longer than the deletion

}  // namespace

std::uint64_t SharedBytes::next(const std::string& path) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> shared;  // bytes of this tree's files
  std::vector<std::string> pending{path};
  while (!pending.empty() && looked_at_ < kMostFiles) {
    const std::string folder = std::move(pending.back());
    pending.pop_back();
    const auto entries = io_.list(folder);
    if (!entries) continue;
    for (const DirEntry& entry : *entries) {
      if (entry.is_link) continue;
      ++looked_at_;
      const std::string below = join_path(folder, entry.name);
      if (entry.kind == FileInfo::Kind::directory) pending.push_back(below);
      if (entry.kind != FileInfo::Kind::file) continue;
      const auto info = io_.stat(below);
      if (!info || info->links < 2) continue;
      const std::pair file(info->device, info->inode);
      if (++names_[file] < info->links)
        shared[file] = info->bytes;
      else
        shared.erase(file);
    }
  }
  std::uint64_t out = 0;
  for (const auto& [file, bytes] : shared) out += bytes;
  return out;
}

}  // namespace ckpt
