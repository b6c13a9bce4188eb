#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "format/model/model.hpp"

namespace ckpt {

/// Where a file is: all of another one, or a range of it.
struct Container {
  std::uint32_t file = 0;   ///< index into Map::files
  std::uint64_t begin = 0;  ///< bytes from that file's start
};

/// Another index, whose files are in containers.
class ContainedIndex final : public ChunkIndex {
 public:
  /// containers  of each file of the other index
  ContainedIndex(std::shared_ptr<const ChunkIndex> index, std::vector<Container> containers)
      : index_(std::move(index)), containers_(std::move(containers)) {}

  Result<> chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const override {
    return index_->chunks(tensor, elements, [&](const PlacedChunk& placed) {
      PlacedChunk moved = placed;
      Locator& where = moved.where;
      const Container container = containers_[where.file];
      where.file = container.file;
      if (where.compressed) {  // offsets count decoded bytes
        where.compressed->stored.begin += container.begin;
        where.compressed->stored.end += container.begin;
      } else {
        where.offset += container.begin;
        if (where.crc) {
          where.crc->begin += container.begin;
          where.crc->end += container.begin;
        }
      }
      return visit(moved);
    });
  }
  Result<> regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const override {
    return index_->regions(tensor, elements, visit);
  }

 private:
  std::shared_ptr<const ChunkIndex> index_;
  std::vector<Container> containers_;
};

}  // namespace ckpt
