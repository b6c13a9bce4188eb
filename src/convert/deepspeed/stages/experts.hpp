#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/deepspeed/files/detect.hpp"
#include "convert/deepspeed/files/file_set.hpp"
#include "convert/deepspeed/files/files.hpp"
#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/files/optim_states.hpp"

namespace ckpt::deepspeed {

/// A name such as `h.1.moe.deepspeed_moe.experts.deepspeed_experts.3.0.weight`, in its parts.
struct ExpertName {
  std::string_view layer;      ///< with the dot before the number
  std::uint64_t number = 0;    ///< local or global, depending on the file
  std::string_view parameter;  ///< with the dot after the number

  /// The same parameter of another expert.
  std::string with(std::uint64_t other) const;
};
/// The last expert in a name; nothing if the name is not an expert's.
/// source   deepspeed/runtime/engine.py: _save_moe_checkpoint
std::optional<ExpertName> expert_name(std::string_view name);

/// The expert-parallel ranks whose experts a model-parallel rank has: `first`, `first + stride`, ...
struct ExpertShare {
  std::uint64_t first = 0;
  std::uint64_t stride = 1;
};

/// Takes the weights of a model-parallel rank's experts, each from its own file, into `module`, by global numbers. The
/// parameters of param_shapes get them too: expert-parallel rank r has the experts [r x local, (r + 1) x local) of a
/// layer.
///
/// errors   corrupt: a file that holds another expert's weights, layers that are mixed, experts that do not divide by
///          those of a rank, a trained expert without its weight
Result<> add_experts(FileSet& set, const Tag& tag, const ExpertFiles& files, const ExpertShare& share,
                     ModelStates& model);

/// Stage 0: the part of a model that one of `expert_ranks` expert-parallel ranks has: its own experts, and everything
/// that is not an expert.
/// errors   unsupported: a layer whose experts do not divide by the ranks
Result<ModelStates> model_of_expert_rank(const ModelStates& model, std::uint64_t expert_rank,
                                         std::uint64_t expert_ranks);

/// The data-parallel ranks that share the experts of an expert-parallel rank, in the order of their parts.
/// data_before_experts  the order of the mesh: ranks of one set of experts are adjacent
/// source   deepspeed/utils/groups.py: _create_expert_and_data_parallel
std::vector<std::uint64_t> ranks_of_experts(std::uint64_t expert_rank, std::uint64_t expert_ranks,
                                            std::uint64_t rank_count, bool data_before_experts);

/// Sorts a rank's groups into the order of param_shapes. That is the first rank's: DeepSpeed makes the groups of
/// several expert-parallel degrees in the order of a Python set of strings, which differs in each process. The number
/// of parts identifies a group; if it does not, the order is unchanged.
/// returns  whether the order was different
/// source   deepspeed/moe/utils.py: split_params_into_different_moe_groups_for_optimizer
bool order_groups(const ModelStates& model, std::uint64_t rank_count, OptimStates& states);
/// For people: so many ranks have another order.
std::string reordered_text(std::uint64_t ranks);

/// Checks the number of parts that each group records against the number of ranks.
/// counts   partition_count of one rank's optimizer file
/// returns  empty, or the contradiction
std::string check_part_counts(const ModelStates& model, const std::vector<std::uint64_t>& counts,
                              std::uint64_t rank_count);

}  // namespace ckpt::deepspeed
