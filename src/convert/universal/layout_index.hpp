#pragma once

#include <memory>

#include "convert/universal/writer_files.hpp"
#include "format/model/model.hpp"

namespace ckpt::universal {

/// The chunks of a checkpoint in layouts beyond `whole`, computed on demand: memory grows with tensors and files, not
/// with chunks. `regions` computes no location.
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
