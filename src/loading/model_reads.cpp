#include "loading/model_reads.hpp"

#include <algorithm>
#include <utility>

#include "format/universal/local_array.hpp"

namespace ckpt {

Result<std::vector<PartRead>> model_reads(const universal::Layout& layout, const universal::TensorRow& row,
                                          std::uint64_t rank, std::uint32_t tensor, std::byte* out,
                                          std::uint64_t& bytes) {
  CKPT_TRY(const std::vector<Chunk> held, universal::held_chunks(layout, row.tensor, row.begin, rank));
  std::vector<PartRead> requests;
  const Dtype dtype = row.tensor.dtype;
  bytes = chunk_bytes(held, dtype);
  for (const LocalPart& part : local_parts(held, dtype)) {
    const Chunk& chunk = held[part.chunk];
    if (part.strides.empty()) {
      requests.push_back({.tensor = tensor, .chunk = chunk, .out = out + part.offset});
      continue;
    }
    // Rows of several boxes are interleaved: one request per row.
    const std::size_t dim = part.dense_dim;
    std::uint64_t rows = 1;
    for (std::size_t d = 0; d < dim; ++d) rows *= chunk.box.size[d];
    for (std::uint64_t n = 0; n < rows; ++n) {
      Box box = chunk.box;
      std::uint64_t rest = n;
      std::uint64_t elements = 0;
      for (std::size_t d = dim; d-- > 0;) {
        const std::uint64_t index = rest % chunk.box.size[d];
        rest /= chunk.box.size[d];
        box.offset[d] += index;
        box.size[d] = 1;
        elements += index * static_cast<std::uint64_t>(part.strides[d]);
      }
      requests.push_back({.tensor = tensor,
                          .chunk = {.box = std::move(box)},
                          .out = out + part.offset + elements * dtype_bits(dtype) / 8});
    }
  }
  return requests;
}

}  // namespace ckpt
