#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/hash.hpp"
#include "format/model/box.hpp"
#include "format/result.hpp"

/// index/WWWWW.bin: the parts of tensors in irregular layouts that one writer wrote. FORMAT.md section 6.3.
namespace ckpt::universal {

/// A chunk of an irregular layout and its place.
struct IndexedChunk {
  std::uint32_t row = 0;     ///< the tensor's number in the manifest, in name order
  std::uint32_t volume = 0;  ///< of the file that holds it; its class follows from the row's role
  Chunk chunk{};
  std::uint64_t offset = 0;  ///< bytes from the start of the file
};

struct IndexFile {
  Hash128 id{};  ///< of the checkpoint
  std::uint32_t writer = 0;
  std::vector<IndexedChunk> chunks{};  ///< sorted by (row, first element, volume)
};

/// The bytes of an index file; sorts `chunks`.
///
/// shapes    of the manifest's rows in order
/// errors    internal: a chunk that is empty or outside of its tensor
Result<std::string> build_index_file(IndexFile index, std::span<const Shape> shapes);

/// Reads a whole index file.
///
/// shapes   of the manifest's rows in order: every chunk must be inside its tensor
/// errors   those of checks 37, 38, 40 and 41 of FORMAT.md section 10, with the offset
Result<IndexFile> parse_index_file(std::span<const std::byte> data, std::span<const Shape> shapes);

}  // namespace ckpt::universal
