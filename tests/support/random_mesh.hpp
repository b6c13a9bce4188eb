#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "format/universal/mesh_layout.hpp"

namespace ckpt::test {

/// A tensor in a mesh layout that fits it.
struct MeshCase {
  universal::Layout layout{};
  Tensor tensor{};
  std::uint64_t begin = 0;
};

/// Draws one with every rule: up to four axes of up to four, replicas, several cuts of one dimension, segments, points,
/// flat parts with a begin, packed dtypes, empty tensors, and chunks that replicas share.
MeshCase random_mesh_case(std::mt19937_64& random);

/// The same for a tensor and a mesh that are given.
MeshCase random_layout_of(std::mt19937_64& random, const Tensor& tensor, const universal::Mesh& mesh);

/// The elements of a chunk in order: row-major indices in the tensor.
std::vector<std::uint64_t> elements_of(const Chunk& chunk, const Shape& shape);

}  // namespace ckpt::test
