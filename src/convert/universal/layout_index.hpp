#pragma once

#include <memory>

#include "convert/universal/writer_files.hpp"
#include "format/model/model.hpp"

namespace ckpt::universal {

/// The chunks of a checkpoint in layouts beyond `whole`, by arithmetic on demand: memory follows tensors and files, not
/// chunks. `regions` needs no place and computes none.
class LayoutIndex final : public ChunkIndex {
 public:
  explicit LayoutIndex(WriterFiles files);

  Result<> chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const override;
  Result<> regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const override;

 private:
  mutable WriterFiles files_;  // caches its results
  ChunkTable irregular_;
};

}  // namespace ckpt::universal
