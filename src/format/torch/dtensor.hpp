#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "format/model/box.hpp"
#include "format/result.hpp"
#include "format/torch/pickle.hpp"
#include "format/torch/torch_object.hpp"

/// DTensors as torch.save writes them, one rank's view each: accelerate without DCP, verl, ms-swift.
namespace ckpt::torch {

/// How one dimension of a device mesh divides a tensor.
struct Placement {
  enum class Kind : std::uint8_t { replicate, shard, strided_shard, partial } kind = Kind::replicate;
  std::uint64_t dim = 0;           ///< shards: of the tensor
  std::uint64_t split_factor = 1;  ///< strided_shard: the parts that the dimension is cut into first
};

/// The part of a DTensor on one rank.
struct DistributedView {
  TensorView local;
  Shape global_shape;
  std::vector<Placement> placements;            ///< one per mesh dimension
  std::vector<std::uint64_t> mesh;              ///< ranks along each dimension
  std::vector<std::uint64_t> coordinate;        ///< of this rank, one per dimension; empty: it is not in the mesh
  std::vector<std::vector<std::size_t>> order;  ///< one per tensor dimension: the mesh dimensions that cut it, in order
};

/// Reads the DTensors of one rank's pickle. Meshes are shared between tensors, and parsed once.
class DistributedReader {
 public:
  /// graph  outlives the reader
  /// rank   the rank whose file it is: its place in the mesh is looked up, and must match the pickle
  DistributedReader(const pickle::Graph& graph, std::uint64_t rank) : graph_(graph), rank_(rank) {}

  /// The DTensor of a node; nothing when it is not one.
  /// errors  corrupt, with the node's offset: it contradicts itself, or was written by another rank; unsupported: a
  ///         mesh that does not list its ranks, a placement of an unknown class
  /// source  torch/distributed/tensor/_dtensor_spec.py DTensorSpec, torch/distributed/device_mesh.py DeviceMesh; before
  ///         2.5 below torch/distributed/_tensor
  Result<std::optional<DistributedView>> read(pickle::NodeId node);

 private:
  struct Mesh {
    std::vector<std::uint64_t> sizes;
    std::vector<std::uint64_t> coordinate;
  };
  Result<Mesh> read_mesh(pickle::NodeId node) const;

  const pickle::Graph& graph_;
  std::uint64_t rank_;
  std::unordered_map<pickle::NodeId, Mesh> meshes_;
};

/// A part of the whole tensor and its offset in the rank's local one.
struct LocalPiece {
  Box box;
  Shape local;
};
/// The part on the rank, by its placements: one piece, unless a strided shard has no counterpart.
/// errors  corrupt: the local shape is a different one; refused: more than 65,536 pieces; unsupported: a partial
///         placement, whose values must still be summed
/// source  torch/distributed/tensor/_utils.py _compute_local_shape_and_global_offset; cut::chunk
Result<std::vector<LocalPiece>> local_pieces(const DistributedView& view);

}  // namespace ckpt::torch
