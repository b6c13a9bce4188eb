#pragma once

#include <cstdint>
#include <functional>

#include "format/universal/mesh_layout.hpp"

/// The inverse of written_chunks: the writers of a range of a tensor.
namespace ckpt::universal {

/// A chunk that a writer wrote, and its number among those it wrote of the tensor: the volume of its file.
struct WrittenChunk {
  std::uint32_t writer = 0;
  std::uint32_t volume = 0;
  Chunk chunk{};
};
using WrittenVisitor = std::function<Result<>(WrittenChunk)>;

/// Calls `visit` for every written chunk of a tensor in a mesh layout whose span overlaps `elements` (row-major, of the
/// whole tensor); others that only come near may be visited too. In no particular order. The cost grows with the
/// overlapping parts, not with the writers.
///
/// layout   of kind mesh, passed both checks
/// errors   as written_chunks; the visitor's own
Result<> search_mesh(const Layout& layout, const Tensor& tensor, std::uint64_t begin, Extent elements,
                     const WrittenVisitor& visit);

}  // namespace ckpt::universal
