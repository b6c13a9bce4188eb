#include <fmt/format.h>

#include "convert/formats.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kTracker = "latest_universal";
constexpr std::size_t kMaxLooks = 64;  // directories that are looked into

/// `zero/<parameter>/fp32.pt`, with the moments beside it. Source: deepspeed/checkpoint/ds_to_universal.py.
bool has_parameters(Io& io, const std::string& zero) {
  const auto parameters = io.list(zero);
  if (!parameters) return false;
  std::size_t looked = 0;
  for (const DirEntry& parameter : *parameters) {
    if (parameter.kind != FileInfo::Kind::directory || ++looked > kMaxLooks) continue;
    if (io.stat(join_path(join_path(zero, parameter.name), "fp32.pt")).has_value()) return true;
  }
  return false;
}

Result<std::optional<Match>> detect(const Place& place) {
  if (!place.directory) return std::nullopt;
  if (place.has(kTracker)) return Match{.where = {}, .why = std::string(kTracker)};
  if (place.has("zero") && has_parameters(place.io, join_path(place.root, "zero")))
    return Match{.where = {}, .why = "zero/<parameter>/fp32.pt"};
  return std::nullopt;
}

}  // namespace

Format deepspeed_universal_format() {
  return {.name = "deepspeed-universal",
          .summary = "a DeepSpeed universal checkpoint",
          .detect = detect,
          .open = nullptr,
          .lay_out = nullptr,
          .suffix = ""};
}

}  // namespace ckpt
