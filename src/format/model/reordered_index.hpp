#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "format/model/model.hpp"

namespace ckpt {

/// Some tensors of another index, in another order.
class ReorderedIndex final : public ChunkIndex {
 public:
  /// tensors  for each tensor of this index, its number in the other one
  ReorderedIndex(std::shared_ptr<const ChunkIndex> index, std::vector<std::uint32_t> tensors)
      : index_(std::move(index)), tensors_(std::move(tensors)) {}

  Result<> chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const override {
    return index_->chunks(tensors_[tensor], elements, visit);
  }
  Result<> regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const override {
    return index_->regions(tensors_[tensor], elements, visit);
  }

 private:
  std::shared_ptr<const ChunkIndex> index_;
  std::vector<std::uint32_t> tensors_;
};

}  // namespace ckpt
