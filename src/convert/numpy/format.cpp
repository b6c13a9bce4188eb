#include <algorithm>
#include <array>

#include "convert/formats.hpp"
#include "convert/numpy/writer.hpp"
#include "format/little_endian.hpp"

namespace ckpt {
namespace {

constexpr std::array<std::string_view, 2> kNumpySuffixes{".npy", ".npz"};
constexpr std::array<std::string_view, 1> kNumpyOwnNames{"*.npy"};
constexpr std::string_view kArrayMagic = "\x93NUMPY";
constexpr std::string_view kZipMagic = "PK\x03\x04";
constexpr std::size_t kZipNameBytes = 26;  // of a local header: u16 length of the name, u16 of the extra field
constexpr std::size_t kZipName = 30;

bool is_array_name(std::string_view name) {
  return name.ends_with(".npy") || name.ends_with(".npz");
}

/// numpy.savez: a zip whose first entry is an array.
bool is_npz(std::string_view head) {
  if (!head.starts_with(kZipMagic) || head.size() < kZipName) return false;
  return head.substr(kZipName, read_little_endian(head, kZipNameBytes, 2)).ends_with(".npy");
}

Result<std::optional<Match>> detect_numpy(const Place& place) {
  if (place.directory) {
    const bool only_arrays =
        !place.entries.empty() && std::all_of(place.entries.begin(), place.entries.end(),
                                              [](const DirEntry& entry) { return is_array_name(entry.name); });
    if (only_arrays) return Match{.where = {}, .why = place.entries.front().name};
    return std::nullopt;
  }
  CKPT_TRY(const std::string head, place.head("", 4096));
  if (head.compare(0, kArrayMagic.size(), kArrayMagic) == 0) return Match{.where = {}, .why = "begins with \\x93NUMPY"};
  if (is_npz(head)) return Match{.where = {}, .why = "a zip of .npy arrays"};
  return std::nullopt;
}

}  // namespace

Format numpy_format() {
  return {.name = "numpy",
          .summary = "a NumPy file (.npy, .npz)",
          .detect = detect_numpy,
          .suffixes = kNumpySuffixes,
          .own_names = kNumpyOwnNames,
          .parts_writer = FormatPartsWriter{.name = "npy", .lay_out = numpy::lay_out}};
}

}  // namespace ckpt
