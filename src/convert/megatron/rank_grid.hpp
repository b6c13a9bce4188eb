#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
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

/// The ranks of a pipeline stage that hold different parts of the model. Experts have a grid of their own over the same
/// ranks: rank r has tensor-parallel number r % tensor, and of the experts part r % expert_tensor of the group
/// r / expert_tensor % expert. A folder is named by the first and the last of these numbers, so `expert_tensor` divides
/// `tensor`: others would write to one folder.
///
/// source  megatron/core/parallel_state.py: RankGenerator, order tp-cp-ep-dp-pp; training/checkpointing.py:
///         get_checkpoint_name
struct StageRanks {
  std::uint64_t tensor = 1;
  std::uint64_t expert = 1;
  std::uint64_t expert_tensor = 1;

  bool is_possible() const { return tensor % expert_tensor == 0; }
  /// The first rank of the stage with these numbers, one of `numbers`.
  std::uint64_t rank_of(std::uint64_t tensor_number, std::uint64_t expert_number) const {
    std::uint64_t rank = tensor_number;
    while (rank / expert_tensor % expert != expert_number) rank += tensor;
    return rank;
  }
  /// Tensor- and expert-parallel numbers, in ascending order.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> numbers() const;
  /// Which part of an expert, or of another weight, it has.
  std::uint64_t part(std::uint64_t tensor_number, bool of_expert) const {
    return of_expert ? tensor_number % expert_tensor : tensor_number;
  }
  /// Whether it is the first of the ranks with the same part: that one stores the distributed optimizer's state.
  bool is_first(std::uint64_t tensor_number, std::uint64_t expert_number, bool of_expert) const {
    if (!of_expert) return expert_number == tensor_number / expert_tensor % expert;
    return tensor_number == (expert_number * expert_tensor + tensor_number % expert_tensor) % tensor;
  }
};

/// How a run divides its model among ranks.
struct RankGrid {
  std::uint64_t tensor = 1;
  std::uint64_t pipeline = 1;
  std::uint64_t chunks = 1;  ///< of each pipeline stage, with the interleaved schedule
  std::uint64_t expert = 1;
  std::uint64_t expert_tensor = 1;  ///< tensor-parallel ranks of an expert
  std::uint64_t data = 1;           ///< data-parallel ranks, times the context-parallel ones
  /// The first layer of chunk c of stage p at c * pipeline + p, and at the end the number of layers.
  std::vector<std::uint64_t> first_layer{};

  std::optional<std::uint64_t> first_stage{};  ///< its layers, where it has others than the stages between
  std::optional<std::uint64_t> last_stage{};   ///< likewise

  std::uint64_t first(std::uint64_t chunk, std::uint64_t stage) const { return first_layer[chunk * pipeline + stage]; }
  std::uint64_t end(std::uint64_t chunk, std::uint64_t stage) const {
    return first_layer[chunk * pipeline + stage + 1];
  }
  StageRanks stage() const { return {.tensor = tensor, .expert = expert, .expert_tensor = expert_tensor}; }
  /// Every rank, stage by stage.
  std::vector<RankPlace> places() const;
  /// The first of the data-parallel ranks with a place, which is the one that writes its files.
  std::uint64_t writer(const RankPlace& place) const;
  /// mp_rank_00_001: only the dimensions that are divided have numbers, but the first.
  std::string folder(const RankPlace& place) const;
};

/// The grid of a run by its arguments, with the sizes that the options give in their place.
///
/// args    of the run; null: it has none
/// layers  of the whole model
/// errors  unsupported: the layers cannot be divided among the stages, the tensor-parallel sizes do not fit each other,
///         or there are too many ranks; with the nearest size that can as a hint
/// source  megatron/core/transformer/transformer_block.py: get_num_layers_to_build; transformer_layer.py:
///         get_transformer_layer_offset
Result<RankGrid> rank_grid(const Value* args, const TargetOptions& options, std::uint64_t layers,
                           const std::string& target);

}  // namespace ckpt::megatron
