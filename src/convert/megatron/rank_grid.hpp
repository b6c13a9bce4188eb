#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert/target_options.hpp"
#include "format/model/value.hpp"
#include "format/result.hpp"

namespace ckpt::megatron {

/// The place of one model-parallel rank.
struct RankPlace {
  std::uint64_t tensor = 0;
  std::uint64_t pipeline = 0;
  std::uint64_t expert = 0;
};

/// How a run divides its model among ranks.
struct RankGrid {
  std::uint64_t tensor = 1;
  std::uint64_t pipeline = 1;
  std::uint64_t chunks = 1;  ///< of each pipeline stage, with the interleaved schedule
  std::uint64_t expert = 1;
  std::uint64_t data = 1;  ///< data-parallel ranks, times the context-parallel ones
  /// The first layer of chunk c of stage p at c * pipeline + p, and at the end the number of layers.
  std::vector<std::uint64_t> first_layer{};

  std::optional<std::uint64_t> first_stage{};  ///< its layers, where it has others than the stages between
  std::optional<std::uint64_t> last_stage{};   ///< likewise

  std::uint64_t first(std::uint64_t chunk, std::uint64_t stage) const { return first_layer[chunk * pipeline + stage]; }
  std::uint64_t end(std::uint64_t chunk, std::uint64_t stage) const {
    return first_layer[chunk * pipeline + stage + 1];
  }
  /// Every rank, with the tensor-parallel rank last to change.
  std::vector<RankPlace> places() const;
  /// mp_rank_00_001: only the dimensions that are divided have numbers, but the first.
  std::string folder(const RankPlace& place) const;
};

/// The grid of a run by its arguments, with the sizes that the options give in their place.
///
/// args    of the run; null: it has none
/// layers  of the whole model
/// errors  unsupported: the layers cannot be divided among the stages, or there are too many ranks; with the nearest
///         number of stages that can as a hint
/// source  megatron/core/transformer/transformer_block.py: get_num_layers_to_build; transformer_layer.py:
///         get_transformer_layer_offset
Result<RankGrid> rank_grid(const Value* args, const TargetOptions& options, std::uint64_t layers,
                           const std::string& target);

}  // namespace ckpt::megatron
