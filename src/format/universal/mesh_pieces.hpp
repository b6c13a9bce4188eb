#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/universal/mesh_layout.hpp"

/// The steps of a mesh layout one by one, for mesh_layout (one writer, all its chunks) and mesh_search (one range, all
/// its writers). Layouts must have passed check_layout.
namespace ckpt::universal {

/// The rest of a tensor after some cuts: for each dimension the ranges of the tensor that a local array concatenates,
/// ascending, none empty, no two adjacent.
using LocalDims = std::vector<std::vector<Extent>>;
LocalDims whole_dims(const Shape& shape);

/// Parts of a cut or a flat division: the product of the axes' sizes.
std::uint64_t part_count(const Mesh& mesh, std::span<const std::uint32_t> axes);
/// The part's number of a writer with these coordinates.
std::uint64_t part_number(const Mesh& mesh, std::span<const std::uint32_t> axes,
                          std::span<const std::uint64_t> coordinates);
/// The inverse: sets the coordinates of `axes`.
void set_part(const Mesh& mesh, std::span<const std::uint32_t> axes, std::uint64_t part,
              std::span<std::uint64_t> coordinates);

/// Every run of a chunk begins and ends on a whole byte of its tensor. The chunk must be inside.
bool is_whole_bytes(const Chunk& chunk, const Tensor& tensor);

/// One part of what `ranges` leave of a dimension.
std::vector<Extent> cut_ranges(const std::vector<Extent>& ranges, const Layout::Cut& cut, std::uint64_t part,
                               std::uint64_t parts);

/// The parts of a cut that may hold any of [needed.begin, needed.end) of the tensor's dimension.
Extent parts_that_meet(const std::vector<Extent>& ranges, const Layout::Cut& cut, std::uint64_t parts, Extent needed);

/// The part after `part` that may hold anything: of points that follow each other without a step there may be many.
std::uint64_t next_part(const Layout::Cut& cut, std::uint64_t part);

/// The chunks of a local array: its boxes, or what part `flat_part` of them holds; see held_chunks.
/// errors   corrupt: over kMaxBoxes
Result<std::vector<Chunk>> local_chunks(const LocalDims& dims, const Layout& layout, std::uint64_t begin,
                                        std::uint64_t flat_part);

/// The axes that count replicas, in mesh order: free ones, and those of `at` with several indices.
struct ReplicaAxis {
  std::uint32_t axis = 0;
  const std::vector<std::uint64_t>* indices = nullptr;  ///< of `at`; null: all coordinates
  std::uint64_t size = 1;
};
struct Replicas {
  std::vector<ReplicaAxis> axes{};
  std::uint64_t count = 1;  ///< at most kMaxWriters

  explicit Replicas(const Layout& layout);
  /// The replica's number of a writer that holds the tensor.
  std::uint64_t number(std::span<const std::uint64_t> coordinates) const;
  /// The inverse: sets the coordinates of `axes`.
  void set(std::uint64_t number, std::span<std::uint64_t> coordinates) const;
};

/// The range of the row-major order of `box` that its overlap with `needed` spans; empty if they are disjoint.
Extent span_in(const Box& box, const Box& needed);

/// True where replicas share the writing of a chunk.
bool is_shared(const Chunk& chunk, Dtype dtype);
/// Replica `replica`'s part of a divided chunk, by rows or elements: empty for some replicas if there are
/// few.
Chunk share_of(const Chunk& chunk, Dtype dtype, std::uint64_t replica, std::uint64_t replica_count);
/// How many replicas, from 0 on, have something in their part of a chunk that is shared.
std::uint64_t sharer_count(const Chunk& chunk, Dtype dtype, std::uint64_t replica_count);
/// The replicas whose part of a shared chunk may meet `needed`, a box of the tensor that the chunk's box meets.
Extent sharers(const Chunk& chunk, Dtype dtype, std::uint64_t replica_count, const Box& needed);
/// The replica that writes a chunk which is not shared.
std::uint64_t owner_of(const Tensor& tensor, std::uint64_t replica_count);

}  // namespace ckpt::universal
