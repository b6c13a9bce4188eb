#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "format/safetensors.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

// What is accepted tiles the file exactly, and can be written again with the same places.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace st = ckpt::safetensors;
  const auto parsed = st::parse_header(std::as_bytes(std::span(data, size)), size);
  if (!parsed) return 0;
  std::uint64_t bytes = 0;
  std::vector<st::NewEntry> again;
  for (const st::Entry& entry : parsed->entries) {
    require(entry.begin <= entry.end && entry.end <= size - parsed->data_begin);
    bytes += entry.end - entry.begin;
    again.push_back({entry.name, entry.dtype, entry.shape});
  }
  require(bytes == size - parsed->data_begin);
  const auto built = st::build_header(again, parsed->metadata);
  require(built.has_value() && built->offsets.size() == again.size());
  const auto second = st::parse_header(std::as_bytes(std::span(built->bytes)), built->file_bytes);
  require(second.has_value() && second->entries.size() == again.size() && second->metadata == parsed->metadata);
  for (std::size_t i = 0; i < again.size(); ++i) {
    require(second->entries[i].name == parsed->entries[i].name && second->entries[i].shape == parsed->entries[i].shape);
    require(second->data_begin + second->entries[i].begin == built->offsets[i]);
  }
  return 0;
}
