#include "convert/safetensors/lost_scalars.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include "convert/safetensors/selection.hpp"

namespace ckpt::safetensors {
namespace {

constexpr std::uint64_t kMostScalarBytes = 16;

Result<bool> is_zero(Io& io, FileHandle file, std::uint64_t offset, std::uint64_t bytes) {
  std::array<std::byte, kMostScalarBytes> value{};
  CKPT_CHECK(io.read_at(file, offset, std::span(value).first(bytes)));
  return std::all_of(value.begin(), value.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

/// Scalars whose bytes are all zero, by name.
Result<std::unordered_map<std::string, Dtype>> zero_scalars(Io& io, const std::string& root,
                                                            const std::vector<Shard>& full) {
  std::unordered_map<std::string, Dtype> zeros;
  for (const Shard& shard : full) {
    std::vector<const Entry*> scalars;
    for (const Entry& entry : shard.header.entries) {
      const std::uint64_t bytes = entry.end - entry.begin;
      if (entry.shape.empty() && bytes > 0 && bytes <= kMostScalarBytes) scalars.push_back(&entry);
    }
    if (scalars.empty()) continue;
    CKPT_TRY(const FileHandle file, io.open(join_path(root, shard.file.path), {}));
    const auto look = [&]() -> Result<> {
      for (const Entry* entry : scalars) {
        CKPT_TRY(const bool zero, is_zero(io, file, shard.header.data_begin + entry->begin, entry->end - entry->begin));
        if (zero) zeros.emplace(entry->name, entry->dtype);
      }
      return {};
    };
    const Result<> looked = look();
    const Result<> closed = io.close(file);
    CKPT_CHECK(looked);
    CKPT_CHECK(closed);
  }
  return zeros;
}

}  // namespace

Result<std::vector<Shard>> lost_scalars(Io& io, const std::string& root, const std::vector<Shard>& full,
                                        ShardReader& reader, Hasher& metadata) {
  std::vector<Shard> out;
  CKPT_TRY(auto zeros, zero_scalars(io, root, full));
  if (zeros.empty()) return out;
  CKPT_TRY(std::vector<DirEntry> entries, io.list(join_path(root, std::string(kSlicesDirectory))));
  std::sort(entries.begin(), entries.end(), [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
  for (const DirEntry& file : entries) {
    if (file.kind != FileInfo::Kind::file || !file.name.ends_with(kSuffix)) continue;
    CKPT_TRY(Shard shard, reader.read(join_path(std::string(kSlicesDirectory), file.name), metadata));
    std::erase_if(shard.header.entries, [&](const Entry& entry) {
      const auto zero = zeros.find(entry.name);
      if (zero == zeros.end() || !entry.shape.empty() || entry.dtype != zero->second) return true;
      zeros.erase(zero);  // the first file that has it
      return false;
    });
    if (!shard.header.entries.empty()) out.push_back(std::move(shard));
  }
  return out;
}

}  // namespace ckpt::safetensors
