#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "format/model/model.hpp"

namespace ckpt {

/// Several indices as one: the tensors of the first, then those of the second, and so on. Their files are numbered the
/// same way.
class JoinedIndex final : public ChunkIndex {
 public:
  /// Adds an index whose tensors and files are the next ones of the map. Every tensor added before is below
  /// `first_tensor`.
  void add(std::shared_ptr<const ChunkIndex> index, std::size_t first_tensor, std::uint32_t first_file);

  Result<> chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const override;
  Result<> regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const override;

 private:
  struct Part {
    std::shared_ptr<const ChunkIndex> index;
    std::size_t first_tensor = 0;
    std::uint32_t first_file = 0;
  };
  const Part& part_of(std::size_t tensor) const;

  std::vector<Part> parts_{};
};

}  // namespace ckpt
