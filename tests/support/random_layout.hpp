#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/plan.hpp"
#include "format/model.hpp"

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

/// Tensors with known bytes, without any layout.
struct State {
  std::vector<Tensor> tensors;
  std::vector<std::string> bytes;  ///< dense, row-major, one a tensor
};
State random_state(Dice& dice);

/// Chunks that cover a tensor exactly once: a grid of boxes, flat ranges of the whole, or flat ranges of boxes.
std::vector<Chunk> random_cut(Dice& dice, const Shape& shape);

/// A state written to `file_count` files in a random cut, with random strides and replicas, below `directory`.
Map write_random_layout(Dice& dice, const State& state, const std::string& directory, std::size_t file_count);

/// Target files in a random cut of every tensor of a map, and the map that reads them back.
struct TargetLayout {
  std::vector<TargetFile> files;
  Map map;
};
TargetLayout random_target(Dice& dice, const std::vector<Tensor>& tensors, std::size_t file_count);

/// One file with every tensor whole, in order.
TargetLayout whole_target(const std::vector<Tensor>& tensors);

}  // namespace ckpt::test
