#include "convert/torch_program.hpp"

#include <algorithm>
#include <span>
#include <string>

#include "format/little_endian.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kTailBytes = std::uint64_t{64} << 10;
constexpr std::string_view kLocalHeader = "PK\3\4";
constexpr std::string_view kDirectoryEntry = "PK\1\2";
constexpr std::size_t kNameLengthAt = 28;
constexpr std::size_t kNameAt = 46;

/// The last bytes of a file; empty if they cannot be read: the reader that opens the file reports why.
std::string tail_of(const Place& place) {
  const auto info = place.io.stat(place.root);
  if (!info || info->kind != FileInfo::Kind::file) return {};
  const auto file = place.io.open(place.root, {});
  if (!file) return {};
  const std::uint64_t bytes = std::min(kTailBytes, info->bytes);
  std::string out(static_cast<std::size_t>(bytes), '\0');
  const auto read = place.io.read_at(*file, info->bytes - bytes, std::as_writable_bytes(std::span(out)));
  const auto closed = place.io.close(*file);
  return read && closed ? out : std::string();
}

}  // namespace

std::string_view torch_program_kind(const Place& place) {
  if (place.directory || !place.first.starts_with(kLocalHeader)) return {};
  const std::string tail = tail_of(place);
  for (std::size_t at = tail.find(kDirectoryEntry); at != std::string::npos; at = tail.find(kDirectoryEntry, at + 1)) {
    if (at + kNameAt > tail.size()) break;
    const std::string_view name =
        std::string_view(tail).substr(at + kNameAt, read_little_endian(std::string_view(tail), at + kNameLengthAt, 2));
    const std::string_view inside = name.substr(name.find('/') + 1);
    if (inside == "constants.pkl" || inside.starts_with("code/")) return "TorchScript";
    if (inside == "archive_format" || inside == "models/model.json" || inside == "serialized_exported_program.json")
      return "torch.export";
  }
  return {};
}

}  // namespace ckpt
