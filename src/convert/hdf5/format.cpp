#include <algorithm>
#include <array>
#include <chrono>

#include "convert/formats.hpp"
#include "convert/hdf5/helper.hpp"
#include "convert/hdf5/reader.hpp"
#include "convert/hdf5/writer.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
// A user block may precede the signature, which is searched at 0, 512, 1024, ... (HDF5 File Format, section II.A).
constexpr std::uint64_t kLastSignature = std::uint64_t{64} << 10;

constexpr std::string_view kKeras = ".keras";
constexpr std::array<std::string_view, 1> kWrittenSuffixes{".h5"};
constexpr std::array<std::string_view, 4> kSuffixes{".h5", ".hdf5", ".hdf", kKeras};

bool has_suffix(const DirEntry& entry) {
  return std::any_of(kSuffixes.begin(), kSuffixes.end(), [&](auto suffix) { return entry.name.ends_with(suffix); });
}

/// A directory is HDF5 if it has no files of another format: tf_model.h5 is often next to the weights that it was made
/// from.
std::optional<Match> detect_directory(const std::vector<DirEntry>& entries) {
  const auto is_weights = [](const DirEntry& entry) {
    return entry.name.ends_with(".safetensors") || entry.name.ends_with(".bin") || entry.name.ends_with(".pt") ||
           entry.name.ends_with(".pth") || entry.name.ends_with(".ckpt");
  };
  const auto file = std::find_if(entries.begin(), entries.end(), has_suffix);
  if (file == entries.end() || std::any_of(entries.begin(), entries.end(), is_weights)) return std::nullopt;
  return Match{.where = {}, .why = file->name};
}

Result<std::optional<Match>> detect_hdf5(const Place& place) {
  if (place.directory) return detect_directory(place.entries);
  CKPT_TRY(const std::string head, place.head("", kLastSignature + kSignature.size()));
  if (place.root.ends_with(kKeras) && head.starts_with("PK\3\4"))
    return Match{.where = "", .why = "a Keras archive: model.weights.h5 in a zip"};
  for (std::uint64_t at = 0; at + kSignature.size() <= head.size(); at = at == 0 ? 512 : at * 2) {
    if (std::string_view(head).substr(at, kSignature.size()) == kSignature)
      return Match{.where = "", .why = "an HDF5 signature"};
  }
  return std::nullopt;
}

Result<std::string> stored_id(Io&, const std::string& root) {
  return hdf5::run_h5(hdf5::kHelperMemory, {"id", root}, "", {.time = std::chrono::seconds(20)});
}

constexpr std::array<std::string_view, 2> kHdf5Synonyms{"h5", "keras"};

}  // namespace

Format hdf5_format() {
  return {.name = "hdf5",
          .summary = "an HDF5 file",
          .synonyms = kHdf5Synonyms,
          .detect = detect_hdf5,
          .suffixes = kSuffixes,
          .reader = FormatReader{.open = hdf5::open, .opens_paths = true},
          .writer = FormatWriter{
              .lay_out = hdf5::lay_out, .suffixes = kWrittenSuffixes, .stored_id = stored_id, .tensor_memory = 600}};
}

}  // namespace ckpt
