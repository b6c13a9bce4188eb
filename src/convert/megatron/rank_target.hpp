#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "convert/megatron/model_division.hpp"
#include "convert/megatron/rank_grid.hpp"
#include "convert/state_archive.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"

/// The files of one rank of a target.
namespace ckpt::megatron {

/// Where a source has a weight and its optimizer's state, all of one shape.
struct WeightState {
  std::uint32_t weight = 0;                      ///< index into Map::tensors
  Dtype dtype = Dtype::f32;                      ///< of the weight in the target
  bool is_trained = true;                        ///< no buffer
  std::optional<std::uint32_t> master{};         ///< none: the weight itself
  std::map<std::string, std::uint32_t> slots{};  ///< "exp_avg", ...
};

/// One of the optimizers of each rank: of the experts, where they are divided among expert-parallel ranks, or of all
/// other weights.
struct RankOptimizer {
  ValuePtr common{};  ///< its state dict, without the weights' state: a dict whose groups are dicts
  bool is_of_experts = false;
};

/// The list of parameter groups of an optimizer's state dict, which may be one level down; null if there is none.
const List* parameter_groups(const Value& optimizer);

struct RankTarget {
  RankTarget(const Map& source, RankGrid ranks, ModelDivision model)
      : map(&source), grid(std::move(ranks)), division(std::move(model)) {}

  const Map* map;
  RankGrid grid;
  ModelDivision division;
  std::unordered_map<std::string, std::uint32_t> by_name{};  ///< tensors of the map
  std::vector<WeightState> states{};                         ///< by number of the whole weight
  std::vector<RankOptimizer> optimizers{};                   ///< empty: the target has no optimizer
  std::vector<std::string> slots{};                          ///< that each trained weight has, without the master
  std::optional<double> step{};                              ///< stored with each weight
  bool is_distributed = true;                                ///< the distributed optimizer
  bool reduces_in_fp32 = true;                               ///< gradients, whatever the weights are
  std::optional<std::uint64_t> bucket{};                     ///< elements, of the first stage's first chunk
  std::string id{};                                          ///< of the conversion
};

/// The files of a rank: its weights with what all ranks have in common, and with the distributed optimizer its state,
/// flat, in the order of the buffers of gradients.
///
/// common  a dict
/// folder  of the rank, below the target's root
Result<std::vector<TargetFile>> rank_target_files(const RankTarget& target, const RankPlace& place,
                                                  const ValuePtr& common, const std::string& folder);

}  // namespace ckpt::megatron
