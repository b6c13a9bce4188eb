#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "format/files/safetensors.hpp"
#include "format/files/safetensors_metadata.hpp"

namespace {

using namespace ckpt::safetensors;

void require(bool holds) {
  if (!holds) std::abort();
}

void try_file(std::span<const std::byte> head, std::uint64_t file_bytes) {
  auto header = parse_header(head, file_bytes);
  if (!header) return;
  for (const auto& [key, value] : header->metadata) {
    (void)parse_saved_offsets(value);
    (void)parse_facts(value);
  }
  // In the order of their data the entries tile the file, so building them gives the same places.
  std::sort(header->entries.begin(), header->entries.end(),
            [](const Entry& a, const Entry& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  std::vector<NewEntry> entries;
  for (const Entry& entry : header->entries) entries.push_back({entry.name, entry.dtype, entry.shape});
  const auto built = build_header(entries, header->metadata);
  require(built.has_value());
  require(built->file_bytes - built->bytes.size() == file_bytes - header->data_begin);
  const auto again = parse_header(std::as_bytes(std::span(built->bytes)), built->file_bytes);
  require(again.has_value() && again->metadata == header->metadata);
  require(again->entries.size() == header->entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    require(again->entries[i].name == header->entries[i].name && again->entries[i].shape == header->entries[i].shape);
    require(again->entries[i].begin == header->entries[i].begin && again->entries[i].end == header->entries[i].end);
  }
}

}  // namespace

// The input as a file, and as a JSON text before as many data bytes as its first two bytes say.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span input = std::as_bytes(std::span(data, size));
  if (const auto length = header_bytes(input, size); length && *length <= size) try_file(input, size);
  if (size < 2) return 0;
  std::string file;
  for (unsigned shift = 0; shift < 64; shift += 8) file += static_cast<char>((size - 2) >> shift & 0xff);
  file.append(reinterpret_cast<const char*>(data) + 2, size - 2);
  try_file(std::as_bytes(std::span(file)), file.size() + data[0] + (std::uint64_t{data[1]} << 8));
  return 0;
}
