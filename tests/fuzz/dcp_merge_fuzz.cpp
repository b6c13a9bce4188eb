#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "format/torch/dcp_merge.hpp"
#include "format/torch/dcp_metadata.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

// The first two bytes are the length of one rank's metadata, what follows it is the other's; each rank may be both.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto rest = std::as_bytes(std::span(data, size)).subspan(2);
  const std::size_t cut = std::min<std::size_t>(rest.size(), std::size_t{data[0]} | std::size_t{data[1]} << 8);
  const ckpt::pickle::Budget budget{.max_nodes = 1 << 20, .max_opcodes = 4 << 20, .max_bytes = 256 << 20};
  const auto first = ckpt::dcp::parse_metadata(rest.first(cut), budget);
  if (!first) return 0;
  const auto second = ckpt::dcp::parse_metadata(rest.subspan(cut), budget);
  ckpt::dcp::MetadataMerge merge;
  if (!merge.add(*first, "__0.metadata") || !merge.add(second ? *second : *first, "__1.metadata")) return 0;
  const auto merged = merge.finish();
  if (!merged) return 0;
  std::uint64_t items = 0;
  for (const auto& entry : merged->entries) {
    require(entry.first_item == items);
    items += entry.item_count;
    require(entry.is_tensor || entry.item_count == 1);
    for (std::uint64_t item = entry.first_item; entry.is_tensor && item < items; ++item) {
      require(ckpt::fits(merged->box(entry, item), entry.shape));
      require(merged->item_offset[item] + merged->item_length[item] <= merged->files[merged->item_file[item]].end);
    }
  }
  require(items == merged->item_file.size());
  return 0;
}
