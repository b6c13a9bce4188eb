#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/run/plan.hpp"
#include "format/model/model.hpp"

namespace ckpt::test {

/// Reproducible choices; the seed is what a failing test prints.
class Dice {
 public:
  explicit Dice(std::uint32_t seed) : engine_(seed) {}
  /// A number in [low, high].
  std::uint64_t roll(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(engine_);
  }
  bool one_in(std::uint64_t n) { return roll(1, n) == 1; }

 private:
  std::mt19937 engine_;
};

/// Tensors with known bytes, without any layout. Floats are never NaN.
struct State {
  std::vector<Tensor> tensors;
  std::vector<std::string> bytes;  ///< dense, row-major, one a tensor
};
/// Some packed, some tiny, some of several leaves.
State random_state(Dice& dice);

/// Chunks that cover a tensor exactly once: a grid of boxes, flat ranges of the whole, or flat ranges of boxes.
std::vector<Chunk> random_cut(Dice& dice, const Shape& shape);

/// A state written to `file_count` files in a random cut, with random strides, byte orders and replicas, below
/// `directory`; 16-bit floats are now and then stored as the F32 they are derived from.
Map write_random_layout(Dice& dice, const State& state, const std::string& directory, std::size_t file_count);

/// The bytes of a chunk as a placement writes them: dense, in its order, cast to `dtype`.
std::string chunk_bytes(const State& state, std::uint32_t tensor, const std::optional<Chunk>& chunk, Dtype dtype);

/// Target files in a random cut of every tensor of a map, and the map that reads them back.
struct TargetLayout {
  std::vector<TargetFile> files;
  Map map;
};
TargetLayout random_target(Dice& dice, const std::vector<Tensor>& tensors, std::size_t file_count);

/// One file with every tensor whole, in order.
TargetLayout whole_target(const std::vector<Tensor>& tensors);

}  // namespace ckpt::test
