#include "convert/deepspeed/writer/expert_layout.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "convert/deepspeed/stages/experts.hpp"

namespace ckpt::deepspeed {
namespace {

/// The position of a group member in the module: by layer, then by expert.
struct Position {
  std::uint64_t layer = 0;
  std::uint64_t expert = 0;
  std::size_t member = 0;
};

}  // namespace

const ExpertLayer* expert_layer_of(const TrainingTarget& target, std::string_view name) {
  const auto parts = expert_name(name);
  if (!parts) return nullptr;
  const auto found = target.expert_at.find(parts->layer);
  return found == target.expert_at.end() ? nullptr : &target.experts[found->second];
}

std::uint64_t expert_rank_of(const TrainingTarget& target, std::uint64_t expert_ranks, std::uint64_t rank) {
  return target.data_before_experts ? rank / (target.dp / expert_ranks) : rank % expert_ranks;
}

GroupShare share_of(const TrainingTarget& target, const TargetGroup& group, std::uint64_t rank) {
  if (group.expert_ranks == 0) return {.group = group, .parts = target.dp, .part = rank};
  const std::uint64_t sharing = target.dp / group.expert_ranks;
  const std::uint64_t mine = expert_rank_of(target, group.expert_ranks, rank);
  std::vector<Position> held;
  for (std::size_t m = 0; m < group.members.size(); ++m) {
    const std::string& name = target.state.model[group.members[m]].name;
    const ExpertLayer& layer = *expert_layer_of(target, name);
    const std::uint64_t expert = expert_name(name)->number;
    if (expert / (layer.experts / layer.ranks) == mine) held.push_back({layer.number, expert, m});
  }
  std::ranges::stable_sort(held, {}, [](const Position& at) { return std::pair(at.layer, at.expert); });
  GroupShare out{.group = {.options = group.options,
                           .members = {},
                           .elements = {},
                           .slots = group.slots,
                           .step = group.step,
                           .values = group.values,
                           .expert_ranks = group.expert_ranks},
                 .parts = sharing,
                 .part = target.data_before_experts ? rank % sharing : rank / group.expert_ranks};
  for (const Position& at : held) {
    out.group.members.push_back(group.members[at.member]);
    out.group.elements.push_back(group.elements[at.member]);
  }
  return out;
}

std::string local_name(const TrainingTarget& target, const std::string& name) {
  const ExpertLayer* layer = expert_layer_of(target, name);
  if (layer == nullptr) return name;
  const ExpertName parts = *expert_name(name);
  return parts.with(parts.number % (layer->experts / layer->ranks));
}

std::uint64_t most_expert_ranks(const TrainingTarget& target) {
  std::uint64_t most = 1;
  for (const ExpertLayer& layer : target.experts) most = std::max(most, layer.ranks);
  return most;
}

std::uint64_t nearest_expert_ranks(std::uint64_t wanted, std::uint64_t dp, const std::vector<std::uint64_t>& counts) {
  std::uint64_t most = dp;
  for (const std::uint64_t count : counts) most = std::gcd(most, count);
  std::uint64_t best = 1;
  const auto distance = [&](std::uint64_t ranks) { return ranks > wanted ? ranks - wanted : wanted - ranks; };
  for (std::uint64_t ranks = 1; ranks <= most; ++ranks) {
    if (most % ranks == 0 && distance(ranks) < distance(best)) best = ranks;
  }
  return best;
}

}  // namespace ckpt::deepspeed
