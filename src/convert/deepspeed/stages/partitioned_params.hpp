#pragma once

#include <variant>
#include <vector>

#include "convert/deepspeed/files/map_builder.hpp"
#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/files/optim_states.hpp"

namespace ckpt::deepspeed {

/// A stage-3 rank's parts of the frozen parameters, in the order of ModelStates::frozen.
using FrozenParts = std::vector<Run>;

/// The runs of a rank's frozen_param_fragments, checked against the shapes of the first rank.
/// errors   corrupt: a part is missing, or is not ceil(n / ranks) long; unsupported: quantised parts
Result<FrozenParts> frozen_parts(const std::string& path, const std::vector<NamedShape>& frozen,
                                 const std::vector<NamedTensor>& fragments, std::uint64_t part_count);

/// A tensor of stage 3 and its location.
struct PartitionedTensor {
  Tensor tensor{};
  std::variant<Locator, PartitionIndex::Partitioned> place{};
  bool is_master_cast = false;  ///< a weight that no file holds
};
struct PartitionedModel {
  std::vector<PartitionedTensor> weights{};  ///< and buffers, in the order of the module
  std::vector<PartitionedTensor> slots{};
  std::vector<Alias> aliases{};
};

/// Stage 3: every parameter is cut separately, and its parts follow each other in each rank's sub-group. ZeRO-3 stores
/// no 16-bit weights: their chunks are those of the master, cast to the dtype of the placeholder in `module`. Buffers
/// are in the model file, frozen parameters in parts of the model's dtype. Arrays of the ranks' parts are added to the
/// builder's index, tensors are only returned.
///
/// ranks    every rank's optimizer file, in rank order; frozen: the same of the model files
/// errors   corrupt, naming file and sub-group: wrong element counts, ranks with different slots; uncovered: a
///          parameter of `module` that no partition holds
/// source   deepspeed/runtime/zero/partition_parameters.py, stage3.py; see format/model/cut.hpp
Result<PartitionedModel> lay_out_partitioned(MapBuilder& builder, const ModelStates& model,
                                             const std::vector<OptimStates>& ranks,
                                             const std::vector<FrozenParts>& frozen);

/// The same, placed: all tensors and ties are added to the map.
Result<> place_partitioned(MapBuilder& builder, const ModelStates& model, const std::vector<OptimStates>& ranks,
                           const std::vector<FrozenParts>& frozen);

/// Records the source of stage 3's weights.
void note_cast_weights(MapBuilder& builder);

}  // namespace ckpt::deepspeed
