#include "convert/dcp/directory.hpp"

#include <algorithm>
#include <charconv>

namespace ckpt::dcp {
namespace {

constexpr std::string_view kData = ".distcp";
constexpr std::string_view kMetadata = ".metadata";

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_rank_metadata(std::string_view name) {
  return name.starts_with("__") && name.ends_with(kMetadata) &&
         number(name.substr(2, name.size() - 2 - kMetadata.size())).has_value();
}

}  // namespace

std::optional<std::uint64_t> rank_of(std::string_view file_name) {
  const std::size_t bar = file_name.rfind('_');
  if (!file_name.starts_with("__") || !file_name.ends_with(kData) || bar == std::string_view::npos || bar < 3) {
    return std::nullopt;
  }
  if (!number(file_name.substr(bar + 1, file_name.size() - bar - 1 - kData.size()))) return std::nullopt;
  return number(file_name.substr(2, bar - 2));
}

Directory look(const std::vector<DirEntry>& entries) {
  Directory out;
  for (const DirEntry& entry : entries) {
    if (entry.kind != FileInfo::Kind::file) continue;
    const std::string& name = entry.name;
    if (name == kMetadata) {
      out.has_metadata = true;
    } else if (name == "metadata.pkl") {
      out.has_metadata_pickle = true;
    } else if (name.ends_with(kData)) {
      out.data.push_back(name);
      if (const auto rank = rank_of(name)) out.world_size = std::max(out.world_size, *rank + 1);
    } else if (is_rank_metadata(name)) {
      ++out.rank_metadata;
    }
  }
  return out;
}

Result<std::optional<Match>> detect(const Place& place) {
  if (!place.directory) return std::nullopt;
  const Directory seen = look(place.entries);
  if (!seen.has_metadata && !seen.has_metadata_pickle && seen.data.empty()) return std::nullopt;
  if (place.has("metadata.json")) {
    CKPT_TRY(const std::string head, place.head("metadata.json", 4096));
    if (head.find("\"sharded_backend\"") != std::string::npos) return std::nullopt;
  }
  const std::string data = std::to_string(seen.data.size()) + " .distcp files";
  if (!seen.data.empty()) {
    return Match{.why = seen.has_metadata ? ".metadata and " + data : data + " without .metadata"};
  }
  const std::string_view name = seen.has_metadata ? kMetadata : std::string_view("metadata.pkl");
  CKPT_TRY(const std::string head, place.head(name, 4096));
  const std::string_view mark = seen.has_metadata ? "torch.distributed" : "nested_path_to_metadata";
  if (head.find(mark) == std::string::npos) return std::nullopt;
  return Match{.why = seen.has_metadata ? ".metadata without data files" : "metadata.pkl of torch_checkpointing"};
}

}  // namespace ckpt::dcp
