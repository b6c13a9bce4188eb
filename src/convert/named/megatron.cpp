#include <fmt/format.h>

#include "convert/formats.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kTracker = "latest_checkpointed_iteration.txt";

/// `iter_0000002/mp_rank_01_003/`: a directory per tensor-, pipeline- and expert-parallel rank (DeepSpeed has files of
/// that name, never directories).
bool is_rank_directory(const DirEntry& entry) {
  return entry.kind == FileInfo::Kind::directory && entry.name.starts_with("mp_rank_");
}

Result<std::optional<Match>> detect(const Place& place) {
  if (!place.directory) return std::nullopt;
  if (place.has(kTracker)) return Match{.where = {}, .why = std::string(kTracker)};
  if (place.has("metadata.json")) {
    CKPT_TRY(const std::string head, place.head("metadata.json", 4096));
    if (head.find("\"sharded_backend\"") != std::string::npos)
      return Match{.where = {}, .why = "metadata.json with a sharded_backend"};
  }
  for (const DirEntry& entry : place.entries) {
    if (is_rank_directory(entry) &&
        place.io.stat(join_path(join_path(place.root, entry.name), "model_optim_rng.pt")).has_value())
      return Match{.where = {}, .why = fmt::format("{}/model_optim_rng.pt", entry.name)};
  }
  return std::nullopt;
}

}  // namespace

Format megatron_format() {
  return {.name = "megatron",
          .summary = "a Megatron-LM checkpoint",
          .detect = detect,
          .open = nullptr,
          .lay_out = nullptr,
          .suffix = ""};
}

}  // namespace ckpt
