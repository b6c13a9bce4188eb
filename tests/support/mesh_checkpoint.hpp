#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "format/universal/writer_layout.hpp"

namespace ckpt::test {

/// A checkpoint that many writers wrote: its manifest, and the values of its tensors.
struct MeshCheckpoint {
  universal::Manifest manifest{};
  std::vector<std::string> bytes{};                                          ///< of each row: dense, row-major
  std::map<std::uint32_t, std::vector<universal::GivenChunks>> irregular{};  ///< by writer
  std::string objects{};                                                     ///< objects.json; empty: none

  /// Adds a tensor with random bytes. Names must ascend.
  void add(Tensor tensor, std::uint32_t layout, std::uint64_t begin, std::mt19937_64& random);
  std::uint32_t writer_count() const;
};

/// A few tensors of all roles, each in a separate layout: whole, any mesh, or any irregular cut.
MeshCheckpoint random_mesh_checkpoint(std::mt19937_64& random);

/// The bytes of a chunk, in its order.
std::string chunk_bytes(const std::string& tensor_bytes, const Tensor& tensor, const Chunk& chunk);

/// Writes all its files below `root`, each writer's computed from its number alone.
void write_mesh_checkpoint(const MeshCheckpoint& checkpoint, const std::string& root);

}  // namespace ckpt::test
