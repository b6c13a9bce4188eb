#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "convert/formats.hpp"
#include "convert/safetensors/reader.hpp"
#include "convert/safetensors/selection.hpp"
#include "convert/safetensors/trainer_metrics.hpp"
#include "format/files/safetensors.hpp"

namespace ckpt {
namespace safetensors {
namespace {

// The slices from which a consolidation was made are in `sharded`.
constexpr std::array kSuffixes{kSuffix};
// Hugging Face's Trainer: PREFIX_CHECKPOINT_DIR in transformers trainer_utils.py.
constexpr std::array<std::string_view, 1> kSteps{"checkpoint-#"};
constexpr std::array<std::string_view, 2> kMarkers{"model.safetensors.index.json", kTrainerState};
constexpr std::array<MetricsFile, 1> kMetrics{{{.name = kTrainerState, .parse = parse_trainer_metrics}}};
constexpr std::array<std::string_view, 2> kOwnNames{"*.safetensors.index.json", "sharded/*.safetensors"};

Result<std::optional<Match>> detect_file(const Place& place) {
  if (place.root.ends_with(kSuffix)) return Match{.where = {}, .why = "a file named *.safetensors"};
  CKPT_TRY(const std::string head, place.head("", kLengthBytes + 1));
  if (head.size() <= kLengthBytes || head.back() != '{') return std::nullopt;
  // Only the length matters: the file size is unknown here, so any length is accepted.
  if (!header_bytes(std::as_bytes(std::span(head)), kLengthBytes + kMaxHeaderBytes)) return std::nullopt;
  return Match{.where = {}, .why = "a header length, then '{'"};
}

std::optional<Match> detect_directory(const std::vector<DirEntry>& entries) {
  std::size_t files = 0;
  std::string index;
  for (const DirEntry& entry : entries) {
    if (entry.kind != FileInfo::Kind::file) continue;
    if (entry.name.ends_with(kSuffix)) ++files;
    if (index.empty() && !index_stem(entry.name).empty()) index = entry.name;
  }
  if (files == 0 && index.empty()) return std::nullopt;
  std::string why = fmt::format("{} *.safetensors", files);
  if (!index.empty()) why += " with " + index;
  return Match{.where = {}, .why = std::move(why)};
}

Result<std::optional<Match>> detect(const Place& place) {
  if (!place.directory) return detect_file(place);
  if (auto match = detect_directory(place.entries)) return match;
  // Only the slices exist: the consolidation of the save has not run.
  CKPT_TRY(const std::vector<DirEntry> slices, place.list_below(kSlicesDirectory));
  auto match = detect_directory(slices);
  if (match) match->where = kSlicesDirectory;
  return match;
}

constexpr std::array<std::string_view, 3> kSafetensorsSynonyms{"hf", "huggingface", "transformers"};

}  // namespace
}  // namespace safetensors

Format safetensors_format() {
  return {.name = "safetensors",
          .summary = "safetensors: one file, a Hugging Face directory, or PyTorch's sharded directory",
          .synonyms = safetensors::kSafetensorsSynonyms,
          .detect = safetensors::detect,
          .suffixes = safetensors::kSuffixes,
          .own_names = safetensors::kOwnNames,
          .has_folders = true,
          .names = {.steps = safetensors::kSteps, .markers = safetensors::kMarkers, .metrics = safetensors::kMetrics},
          .reader = FormatReader{.open = safetensors::open, .has_state_beside = true},
          .writer = FormatWriter{.lay_out = safetensors::lay_out,
                                 .suffixes = safetensors::kSuffixes,
                                 .extras = KeepsExtras::beside,
                                 .lists_extras = true},
          .parts_writer = FormatPartsWriter{.name = "safetensors", .lay_out = safetensors::lay_out_file}};
}

}  // namespace ckpt
