#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/model/box.hpp"
#include "format/model/value.hpp"
#include "format/result.hpp"
#include "format/torch/pickle.hpp"

namespace ckpt::dcp {

/// One entry of the saved state dict, in order: a tensor, or a Python object saved as bytes.
struct Entry {
  std::string fqn;  ///< the key, unchanged
  Path path{};      ///< planner_data's path in nested state; empty if it has none
  bool is_tensor = false;
  std::uint32_t dtype = 0;       ///< tensor: index into Metadata::dtypes
  Shape shape{};                 ///< tensor: global, as torch counts elements
  std::uint64_t first_item = 0;  ///< its items are [first_item, first_item + item_count)
  std::uint64_t item_count = 0;  ///< bytes: one; tensor: one per stored chunk with elements, each replica counts
  std::uint64_t first_bound = 0;
  bool wide = false;  ///< its bounds need 64 bits
  /// Bytes, or a random state, that each of several ranks saved: the metadata file that lists them, for all ranks but the first.
  std::string owner{};
};

/// A data file, as the storage records name it.
struct DataFile {
  std::string path;       ///< relative to the checkpoint, inside it
  std::uint64_t end = 0;  ///< one past the furthest byte that an item uses
};

/// `.metadata` of torch.distributed.checkpoint: the chunks joined with the storage records, as columns. An item takes
/// 20 bytes and its box 8 per dimension (16 if a dimension exceeds 2^32).
struct Metadata {
  std::vector<Entry> entries{};
  std::vector<std::string> dtypes{};      ///< torch's names without "torch.": "float32", "bfloat16"
  std::vector<DataFile> files{};          ///< in the order of first mention
  std::vector<std::string> transforms{};  ///< that every item went through, as listed: "stream.zstd/1"; mostly none
  std::string version{};                  ///< "1.0.0" in new files, else empty
  std::string save_id{};                  ///< of storage_meta, if it has one

  // Columns, one row an item: grouped by entry, and within a tensor in row-major order of the chunk's first element.
  std::vector<std::uint32_t> item_file{};      ///< index into files
  std::vector<std::uint64_t> item_offset{};    ///< bytes from the start of the file
  std::vector<std::uint64_t> item_length{};    ///< bytes
  std::vector<std::uint32_t> narrow_bounds{};  ///< offset then size of each dimension, for each item of an entry
  std::vector<std::uint64_t> wide_bounds{};

  /// Offset (dimension < rank) or size (dimension - rank) of an item of a tensor.
  std::uint64_t bound(const Entry& entry, std::uint64_t item, std::size_t index) const {
    const std::uint64_t at = entry.first_bound + (item - entry.first_item) * 2 * entry.shape.size() + index;
    return entry.wide ? wide_bounds[at] : narrow_bounds[at];
  }
  Box box(const Entry& entry, std::uint64_t item) const;
};

/// Parses `.metadata` as torch 1.13 to 2.13 write it: protocols 2 to 5, class paths below torch.distributed.checkpoint
/// and torch.distributed._shard, with or without storage_meta, version, planner_data and transform_descriptors. Chunks
/// without elements need no storage record and give no item.
///
/// data     the whole file
/// errors   corrupt, naming the tensor if there is one: not such a pickle; a chunk outside its tensor; a chunk without
///          storage record, a record without chunk, two boxes with one offset; a size over 64 bits. unsupported:
///          layouts other than strided; items that went through different transforms. refused: a data file outside the
///          checkpoint, and as pickle::parse
/// source   torch/distributed/checkpoint/metadata.py, filesystem.py (_StorageInfo)
Result<Metadata> parse_metadata(std::span<const std::byte> data, const pickle::Budget& budget = {});

}  // namespace ckpt::dcp
