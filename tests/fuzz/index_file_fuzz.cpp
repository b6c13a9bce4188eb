#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/universal/index_file.hpp"

// What parses is what its own writer gives again, and every chunk lies in its tensor.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::universal;
  static const std::vector<ckpt::Shape> kShapes{{4, 6}, {}, {0, 3}, {10}, {std::uint64_t{1} << 40, 1 << 20}};
  const auto bytes = std::as_bytes(std::span(data, size));
  const ckpt::Result<IndexFile> index = parse_index_file(bytes, kShapes);
  if (!index) return 0;
  for (const IndexedChunk& chunk : index->chunks) {
    if (!ckpt::fits(chunk.chunk.box, kShapes[chunk.row])) __builtin_trap();
  }
  if (data[10] != 0 || data[11] != 0) return 0;  // of a later minor version: this writer states 1.0
  const ckpt::Result<std::string> again = build_index_file(*index, kShapes);
  if (!again || *again != std::string(reinterpret_cast<const char*>(data), size)) __builtin_trap();
  return 0;
}
