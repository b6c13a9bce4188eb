#include "format/universal/whole_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "format/checked.hpp"
#include "format/universal/format_check.hpp"

namespace ckpt::universal {
namespace {

constexpr int kMostAlignment = 12;           // log2 of kDataAlignment
constexpr std::uint64_t kHeaderStart = 256;  // at least: the length field and `__metadata__`

tl::unexpected<Error> bad_volume(const FileRecord& file, std::string_view reason) {
  return violates(Check::places, Error{.message = fmt::format("{}: place tensors: {}", file.key.path(), reason),
                                       .file = file.key.path()});
}

}  // namespace

int entry_alignment(std::uint64_t bytes) {
  return bytes == 0 ? kMostAlignment : std::min(kMostAlignment, std::countr_zero(bytes));
}

void order_entries(std::vector<Entry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    const int first = entry_alignment(a.bytes);
    const int second = entry_alignment(b.bytes);
    return first != second ? first > second : a.name < b.name;
  });
}

Result<std::vector<std::uint32_t>> choose_volumes(std::span<const Candidate> tensors, const VolumeLimits& limits) {
  std::uint64_t to_come = 0;
  for (const Candidate& tensor : tensors) {
    CKPT_TRY(to_come, checked_add(to_come, tensor.bytes));
  }
  std::vector<std::uint32_t> volumes;
  volumes.reserve(tensors.size());
  std::uint32_t volume = 0;
  std::uint64_t data_bytes = 0;
  std::uint64_t header_bytes = 0;
  bool filled = false;  // the first volume holds a tensor
  for (const Candidate& tensor : tensors) {
    const std::uint64_t header = round_up(kHeaderStart + header_bytes + tensor.header_bytes, kDataAlignment);
    const bool passes = header > limits.file_bytes || data_bytes > limits.file_bytes - header ||
                        tensor.bytes > limits.file_bytes - header - data_bytes;
    const bool worth = data_bytes >= limits.smallest_bytes && to_come >= limits.smallest_bytes;
    if (filled && ((passes && worth) || header > limits.header_bytes)) {
      ++volume;
      data_bytes = header_bytes = 0;
    }
    filled = true;
    volumes.push_back(volume);
    data_bytes += tensor.bytes;
    header_bytes += tensor.header_bytes;
    to_come -= tensor.bytes;
  }
  return volumes;
}

Result<std::vector<TensorPlace>> place_whole(const Manifest& manifest, const Sums& sums) {
  const std::vector<TensorRow>& rows = manifest.tensors;
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < rows.size(); ++i) {
    if (manifest.layouts[rows[i].layout].kind == Layout::Kind::whole) order.push_back(i);
  }
  std::vector<std::uint64_t> bytes;
  bytes.reserve(rows.size());
  for (const TensorRow& row : rows) {
    CKPT_TRY(const std::uint64_t size, tensor_bytes(row.tensor.dtype, row.tensor.shape));
    bytes.push_back(size);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return rows[a].file() < rows[b].file(); });

  std::vector<TensorPlace> places(rows.size());
  auto row = order.begin();
  std::vector<Entry> entries;
  for (std::uint32_t n = 0; n < sums.files.size(); ++n) {
    const FileRecord& file = sums.files[n];
    if (file.data_begin == 0) continue;
    if (row != order.end() && rows[*row].file() < file.key) break;
    entries.clear();
    for (; row != order.end() && rows[*row].file() == file.key; ++row)
      entries.push_back({rows[*row].tensor.name, bytes[*row], *row});
    if (entries.empty()) return bad_volume(file, "contains no tensor");
    order_entries(entries);
    std::uint64_t end = file.data_begin;
    for (const Entry& entry : entries) {
      places[entry.tensor] = {n, end};
      CKPT_TRY(end, checked_add(end, entry.bytes));
    }
    if (end != file.bytes) return bad_volume(file, fmt::format("{} bytes, but its tensors end at {}", file.bytes, end));
  }
  if (row != order.end()) {
    const std::string& name = rows[*row].tensor.name;
    return violates(Check::places,
                    Error{.message = fmt::format("{}: place tensors: its file {} is not listed in sums.bin", name,
                                                 rows[*row].file().path()),
                          .tensor = name});
  }
  return places;
}

}  // namespace ckpt::universal
