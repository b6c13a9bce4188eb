#include <algorithm>
#include <array>

#include "convert/formats.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kGgufMagic = "GGUF";
constexpr std::string_view kGgufSuffix = ".gguf";
constexpr std::array kGgufSuffixes{kGgufSuffix};

Result<std::optional<Match>> detect_gguf(const Place& place) {
  if (!place.directory) {
    CKPT_TRY(const std::string head, place.head("", kGgufMagic.size()));
    if (head == kGgufMagic) return Match{.where = {}, .why = "begins with GGUF"};
    return std::nullopt;
  }
  // Quantised copies are often next to their weights, and do not determine the format of the directory.
  const auto is_weights = [](const DirEntry& entry) {
    return entry.name.ends_with(".safetensors") || entry.name.ends_with(".bin") || entry.name.ends_with(".pt");
  };
  const auto file = std::find_if(place.entries.begin(), place.entries.end(),
                                 [](const DirEntry& entry) { return entry.name.ends_with(kGgufSuffix); });
  if (file == place.entries.end() || std::any_of(place.entries.begin(), place.entries.end(), is_weights))
    return std::nullopt;
  return Match{.where = {}, .why = file->name};
}

}  // namespace

Format gguf_format() {
  return {.name = "gguf", .summary = "a GGUF file (llama.cpp)", .detect = detect_gguf, .suffixes = kGgufSuffixes};
}

}  // namespace ckpt
