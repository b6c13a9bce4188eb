#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "format/torch/dcp_metadata.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ckpt::pickle::Budget budget{.max_nodes = 1 << 20, .max_opcodes = 4 << 20, .max_bytes = 256 << 20};
  const auto parsed = ckpt::dcp::parse_metadata(std::as_bytes(std::span(data, size)), budget);
  if (!parsed) return 0;
  std::uint64_t items = 0;
  for (const auto& entry : parsed->entries) {
    require(entry.first_item == items);
    items += entry.item_count;
    for (std::uint64_t item = entry.first_item; entry.is_tensor && item < items; ++item) {
      require(ckpt::fits(parsed->box(entry, item), entry.shape));
    }
  }
  require(items == parsed->item_file.size());
  for (const std::uint32_t file : parsed->item_file) require(file < parsed->files.size());
  return 0;
}
