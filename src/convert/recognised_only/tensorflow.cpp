#include <algorithm>
#include <array>

#include "convert/formats.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kState = "checkpoint";
constexpr std::string_view kStateBegin = "model_checkpoint_path";
constexpr std::string_view kIndexSuffix = ".index";
constexpr std::string_view kFirstShard = ".data-00000-of-";
constexpr std::string_view kSavedModel = "saved_model.pb";
constexpr std::string_view kHint = "read it in Python (tf.train.load_checkpoint) and save its arrays as safetensors";

/// PREFIX.index next to PREFIX.data-00000-of-N.
bool is_index(const std::vector<DirEntry>& entries, std::string_view name) {
  if (!name.ends_with(kIndexSuffix)) return false;
  const std::string shard = std::string(name.substr(0, name.size() - kIndexSuffix.size())) + std::string(kFirstShard);
  return std::ranges::any_of(entries, [&](const DirEntry& entry) { return entry.name.starts_with(shard); });
}

/// Weights of another framework: the directory is theirs.
bool is_other_weights(const DirEntry& entry) {
  return std::ranges::any_of(std::array<std::string_view, 4>{".safetensors", ".bin", ".pt", ".h5"},
                             [&](std::string_view suffix) { return entry.name.ends_with(suffix); });
}

Result<std::optional<Match>> detect_tensorflow(const Place& place) {
  if (!place.directory) {
    const auto siblings = place.io.list(parent_path(place.root));
    if (siblings && is_index(*siblings, base_name(place.root)))
      return Match{.why = "an index of TensorFlow", .hint = std::string(kHint)};
    if (base_name(place.root) == kSavedModel) return Match{.why = "a SavedModel", .hint = std::string(kHint)};
    return std::nullopt;
  }
  if (std::ranges::any_of(place.entries, is_other_weights)) return std::nullopt;
  if (place.has(kSavedModel)) return Match{.why = std::string(kSavedModel), .hint = std::string(kHint)};
  const auto index =
      std::ranges::find_if(place.entries, [&](const DirEntry& entry) { return is_index(place.entries, entry.name); });
  if (index != place.entries.end()) return Match{.why = index->name, .hint = std::string(kHint)};
  if (!place.has(kState)) return std::nullopt;
  const auto head = place.head(kState, kStateBegin.size());
  if (!head || *head != kStateBegin) return std::nullopt;
  return Match{.why = std::string(kState), .hint = std::string(kHint)};
}

}  // namespace

Format tensorflow_format() {
  return {.name = "tensorflow", .summary = "a TensorFlow checkpoint or SavedModel", .detect = detect_tensorflow};
}

}  // namespace ckpt
