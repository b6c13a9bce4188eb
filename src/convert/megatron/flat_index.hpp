#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "format/model/model.hpp"

namespace ckpt::megatron {

/// A range of a flat tensor that holds a box of another tensor, row-major. Flat is also a tensor of more dimensions whose
/// chunks are rows of the last one: its elements count in row-major order.
struct FlatPiece {
  std::uint32_t source = 0;  ///< flat tensor of the source map
  std::uint64_t begin = 0;   ///< element of the flat tensor
  Box to{};                  ///< in the new tensor; not empty
};

/// Chunks of a map some of whose tensors are pieces of flat tensors of another map. The source's chunks are asked for one
/// by one, so nothing grows with their number.
class FlatIndex final : public ChunkIndex {
 public:
  explicit FlatIndex(std::shared_ptr<const ChunkIndex> source) : source_(std::move(source)) {}

  /// Adds the next tensor, one of the source as it is.
  void add(std::uint32_t source);
  /// Adds the next tensor, of this shape, whose pieces lie in flat tensors; `flat` is their shape if it is not of one
  /// dimension.
  void add(const Shape& shape, std::vector<FlatPiece> pieces, Shape flat = {});

  Result<> chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const override;
  Result<> regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const override;

 private:
  struct Entry {
    bool is_same = false;
    std::uint32_t same = 0;
    std::vector<Extent> spans{};  ///< of each piece, from its first to its last element in the new tensor
    std::vector<FlatPiece> pieces{};
    Shape flat{};
  };
  template <class Visit>
  Result<> each_piece(const Entry& entry, Extent elements, const Visit& visit) const;

  std::shared_ptr<const ChunkIndex> source_;
  std::vector<Entry> entries_{};
};

}  // namespace ckpt::megatron
