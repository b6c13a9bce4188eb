#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <unordered_set>

#include "convert/formats.hpp"
#include "support/memory_io.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

// A torch.save file that is accepted has names of its own, and its tensors lie inside it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ckpt::MemoryDisk disk;
  disk.put("/file.pt", std::string(reinterpret_cast<const char*>(data), size));
  const auto io = disk.io();
  const auto map = ckpt::torch_format().reader->open(*io, "/file.pt", {.metadata_limit = 64 << 20});
  if (!map) return 0;
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < map->tensors.size(); ++i) {
    const ckpt::Tensor& tensor = map->tensors[i];
    require(!tensor.name.empty() && names.insert(tensor.name).second);
    const auto visited = map->index->chunks(i, {0, UINT64_MAX}, [&](const ckpt::PlacedChunk& placed) -> ckpt::Result<> {
      require(placed.where.offset < size);
      if (placed.where.crc) require(placed.where.crc->begin < placed.where.crc->end && placed.where.crc->end <= size);
      return {};
    });
    require(visited.has_value());
  }
  for (const auto& alias : map->aliases) require(names.contains(alias.target));
  return 0;
}
