#include "convert/dcp/directory.hpp"

#include <algorithm>

#include "format/text/parse_number.hpp"

namespace ckpt::dcp {
namespace {

constexpr std::string_view kData = ".distcp";
constexpr std::string_view kMetadata = ".metadata";

/// The rank in `__R.metadata`, or nothing.
std::optional<std::uint64_t> metadata_rank_of(std::string_view name) {
  if (!name.starts_with("__") || !name.ends_with(kMetadata) || name.size() < 3 + kMetadata.size()) return std::nullopt;
  const std::string_view digits = name.substr(2, name.size() - 2 - kMetadata.size());
  if (digits.size() > 1 && digits.front() == '0') return std::nullopt;  // torch writes no leading zeros
  return parse_number<std::uint32_t>(digits);
}

}  // namespace

Directory classify(const std::vector<DirEntry>& entries) {
  Directory out;
  for (const DirEntry& entry : entries) {
    if (entry.kind != FileInfo::Kind::file) continue;
    const std::string& name = entry.name;
    if (name == kMetadata) {
      out.has_metadata = true;
    } else if (name.ends_with(kData)) {
      out.data.push_back(name);
    } else if (const auto rank = metadata_rank_of(name)) {
      out.metadata_ranks.push_back(*rank);
    }
  }
  std::sort(out.metadata_ranks.begin(), out.metadata_ranks.end());
  if (!out.has_metadata && !out.metadata_ranks.empty()) {
    out.world_size = out.metadata_ranks.back() + 1;
    for (const std::string& name : out.data) {
      if (const auto rank = rank_of(name)) out.world_size = std::max(out.world_size, *rank + 1);
    }
  }
  return out;
}

bool is_fsdp_folder(const std::vector<DirEntry>& entries) {
  return std::ranges::any_of(entries, [](const DirEntry& entry) {
    return entry.name == kFsdpModel && entry.kind == FileInfo::Kind::directory;
  });
}

Result<std::optional<Match>> detect(const Place& place) {
  if (!place.directory) return std::nullopt;
  CKPT_TRY(const std::vector<DirEntry> model, place.list_below(kFsdpModel));
  if (classify(model).has_metadata) {
    const std::string optimizer = place.has(kFsdpOptimizer) ? " and " + std::string(kFsdpOptimizer) : "";
    return Match{.why = std::string(kFsdpModel) + optimizer + " of Accelerate"};
  }
  const Directory seen = classify(place.entries);
  if (!seen.has_metadata && seen.data.empty()) return std::nullopt;
  if (place.has("metadata.json")) {
    CKPT_TRY(const std::string head, place.head("metadata.json", 4096));
    if (head.find("\"sharded_backend\"") != std::string::npos) return std::nullopt;
  }
  const std::string data = std::to_string(seen.data.size()) + " .distcp files";
  if (!seen.data.empty()) {
    if (seen.has_metadata) return Match{.why = ".metadata and " + data};
    if (seen.metadata_ranks.empty()) return Match{.why = data + " without .metadata"};
    return Match{.why = std::to_string(seen.metadata_ranks.size()) + " __R.metadata and " + data};
  }
  CKPT_TRY(const std::string head, place.head(kMetadata, 4096));
  if (head.find("torch.distributed") == std::string::npos) return std::nullopt;
  return Match{.why = ".metadata without data files"};
}

}  // namespace ckpt::dcp
