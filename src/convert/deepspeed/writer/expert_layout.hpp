#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convert/deepspeed/writer/training_target.hpp"

/// How the experts of a target are divided among its ranks. The names in files of optimizers and models have local
/// numbers, those in files of experts global ones.
namespace ckpt::deepspeed {

/// Elements of one rank's experts that DeepSpeed keeps in one group of parameters: more are split by size.
/// source  deepspeed/moe/utils.py: split_params_into_different_moe_groups_for_optimizer
constexpr std::uint64_t kMostExpertElements = 178'956'971;

/// What one data-parallel rank has of a group of parameters.
struct GroupShare {
  TargetGroup group{};      ///< its members: all, or its own experts in the order of the module
  std::uint64_t parts = 1;  ///< ranks that share those
  std::uint64_t part = 0;   ///< the rank's number among them
};
GroupShare share_of(const TrainingTarget& target, const TargetGroup& group, std::uint64_t rank);

/// The number of an expert-parallel rank, of `expert_ranks` ones, that a data-parallel rank is.
std::uint64_t expert_rank_of(const TrainingTarget& target, std::uint64_t expert_ranks, std::uint64_t rank);

/// The layer that a parameter's name is an expert of, or null.
const ExpertLayer* expert_layer_of(const TrainingTarget& target, std::string_view name);

/// The name that the ranks with an expert call its parameter; other names as they are.
std::string local_name(const TrainingTarget& target, const std::string& name);

/// The most expert-parallel ranks of any layer; 1 where there are no experts.
std::uint64_t most_expert_ranks(const TrainingTarget& target);

/// The number of expert-parallel ranks that is nearest to `wanted` and divides both `dp` and all of `counts`.
std::uint64_t nearest_expert_ranks(std::uint64_t wanted, std::uint64_t dp, const std::vector<std::uint64_t>& counts);

}  // namespace ckpt::deepspeed
