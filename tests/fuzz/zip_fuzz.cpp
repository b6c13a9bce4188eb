#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "format/files/zip.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

// Entries of an accepted archive lie before its directory, without overlap in their names or places.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto stream = std::as_bytes(std::span(data, size));
  const auto tail = ckpt::zip::find_tail(stream.last(std::min<std::size_t>(size, ckpt::zip::kTailBytes)), size);
  if (!tail) return 0;
  require(tail->directory_offset <= size && tail->directory_bytes <= size - tail->directory_offset);
  const auto directory = stream.subspan(tail->directory_offset, tail->directory_bytes);
  const auto entries = ckpt::zip::parse_directory(directory, *tail, size);
  if (!entries) return 0;
  require(entries->size() == tail->entry_count);
  for (const auto& entry : *entries) {
    require(entry.header_offset < size && entry.bytes <= size);
    const auto local = stream.subspan(entry.header_offset)
                           .first(std::min<std::size_t>(size - entry.header_offset, ckpt::zip::kLocalHeaderBytes));
    const auto begin = ckpt::zip::data_offset(local, entry, *tail);
    if (begin) require(*begin <= tail->directory_offset && entry.bytes <= tail->directory_offset - *begin);
  }
  (void)ckpt::zip::without_crc(*entries);
  return 0;
}
