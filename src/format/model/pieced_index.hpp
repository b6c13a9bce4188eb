#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "format/model/model.hpp"

namespace ckpt {

/// A box of a tensor of one map as a box of a tensor of another.
struct TensorPiece {
  static constexpr std::int8_t kRepeated = -1;  ///< a dimension along which the source's elements are repeated

  std::uint32_t source = 0;         ///< tensor of the source map
  Box from{};                       ///< in the source tensor
  Box to{};                         ///< in the new tensor
  std::vector<std::int8_t> axes{};  ///< by dimension of `to`: that of `from` with as many elements, or kRepeated
};

/// Chunks of a map whose tensors are boxes of another map's tensors: cut, joined, transposed, stacked, repeated. The
/// source's chunks are asked for one by one, so nothing grows with their number.
class PiecedIndex final : public ChunkIndex {
 public:
  explicit PiecedIndex(std::shared_ptr<const ChunkIndex> source, std::vector<Shape> source_shapes)
      : source_(std::move(source)), source_shapes_(std::move(source_shapes)) {}

  /// Adds the next tensor, one of the source as it is.
  void add(std::uint32_t source);
  /// Adds the next tensor. Pieces fit their tensors, and are given in any order; dimensions of `from` that no axis names
  /// have one element.
  void add(const Shape& shape, std::vector<TensorPiece> pieces);
  /// Keeps something as long as the index lives.
  void keep(std::shared_ptr<const void> object) { kept_.push_back(std::move(object)); }

  Result<> chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const override;
  Result<> regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const override;

 private:
  struct Placed {
    Extent span{};  ///< from the first to the last element of `to`, in the order of the new tensor
    TensorPiece piece{};
  };
  struct Entry {
    bool is_same = false;
    std::uint32_t same = 0;
    Shape shape{};
    std::vector<Placed> pieces{};  ///< by first element
    bool are_apart = true;         ///< spans do not overlap
  };
  template <class Visit>
  Result<> each_piece(const Entry& entry, Extent elements, const Visit& visit) const;
  Extent span_in_source(const TensorPiece& piece) const;

  std::shared_ptr<const ChunkIndex> source_;
  std::vector<Shape> source_shapes_;
  std::vector<Entry> entries_{};
  std::vector<std::shared_ptr<const void>> kept_{};
};

}  // namespace ckpt
