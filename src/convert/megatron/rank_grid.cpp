#include "convert/megatron/rank_grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "convert/megatron/run_arguments.hpp"

namespace ckpt::megatron {
namespace {

class GridBuild {
 public:
  GridBuild(const Value* args, const TargetOptions& options, std::uint64_t layers, const std::string& target)
      : args_(args), options_(options), layers_(layers), target_(target) {}

  Result<RankGrid> build() {
    grid_.tensor = size(options_.tp, "tensor_model_parallel_size");
    grid_.pipeline = size(options_.pp, "pipeline_model_parallel_size");
    grid_.expert = size(options_.ep, "expert_model_parallel_size");
    grid_.data = size(options_.dp, "data_parallel_size") * argument("context_parallel_size").value_or(1);
    set_expert_tensor();
    // A run's chunks are those of its own number of stages.
    const bool has_other_stages = options_.pp != 0 && argument("pipeline_model_parallel_size") != options_.pp;
    const auto own_chunks = argument("virtual_pipeline_model_parallel_size");
    grid_.chunks = options_.vpp != 0 ? options_.vpp : has_other_stages ? 1 : own_chunks.value_or(1);
    if (grid_.pipeline == 1 && options_.vpp > 1) return refuse("--vpp needs at least two pipeline stages", "--pp 2");
    if (grid_.pipeline == 1) grid_.chunks = 1;
    if (grid_.tensor > kMostTargetRanks || grid_.pipeline > kMostTargetRanks || grid_.expert > kMostTargetRanks ||
        grid_.tensor * grid_.pipeline > kMostTargetRanks ||
        grid_.tensor * grid_.pipeline * grid_.expert > kMostTargetRanks)
      return refuse(fmt::format("too many ranks: the limit is {}", kMostTargetRanks), {});
    if (grid_.expert_tensor > kMostTargetRanks || !grid_.stage().is_possible())
      return refuse(fmt::format("{} tensor-parallel ranks cannot be divided into groups of {} for each expert",
                                grid_.tensor, grid_.expert_tensor),
                    fmt::format("--etp {}", std::gcd(grid_.tensor, grid_.expert_tensor)));
    // Experts are divided among data-parallel ranks: a run has at least as many.
    const std::uint64_t least = std::lcm(grid_.tensor, grid_.expert * grid_.expert_tensor) / grid_.tensor;
    if (options_.dp == 0 && grid_.data % least != 0) grid_.data = least;
    if (grid_.chunks > 1 && grid_.chunks > layers_)
      return refuse(fmt::format("{} layers are too few for {} chunks per stage", layers_, grid_.chunks), {});
    CKPT_CHECK(divide_layers(has_other_stages));
    return std::move(grid_);
  }

 private:
  std::optional<std::uint64_t> argument(std::string_view name) const {
    return args_ == nullptr ? std::nullopt : count_argument(*args_, name);
  }

  std::uint64_t size(std::uint64_t option, std::string_view name) const {
    return option != 0 ? option : argument(name).value_or(1);
  }

  /// As many as other weights have, but where the run has experts and another number.
  void set_expert_tensor() {
    const auto own = argument("expert_tensor_parallel_size");
    const bool is_other =
        argument("num_experts").value_or(0) != 0 && own && own != argument("tensor_model_parallel_size");
    grid_.expert_tensor = options_.etp != 0 ? options_.etp : is_other ? *own : grid_.tensor;
  }

  tl::unexpected<Error> refuse(const std::string& reason, std::string hint) const {
    return fail({.code = Errc::unsupported, .message = target_ + ": " + reason, .hint = std::move(hint)});
  }

  Result<> divide_layers(bool has_other_stages) {
    // Stages of another size than the others, at the ends: of the run only with its own number of stages.
    const auto own = [&](std::string_view name) { return has_other_stages ? std::nullopt : argument(name); };
    const auto first = options_.decoder_first ? options_.decoder_first : own("decoder_first_pipeline_num_layers");
    const auto last = options_.decoder_last ? options_.decoder_last : own("decoder_last_pipeline_num_layers");
    const std::uint64_t ends = first.value_or(0) + last.value_or(0);
    const std::uint64_t stages =
        grid_.pipeline - static_cast<std::uint64_t>(first.has_value()) - static_cast<std::uint64_t>(last.has_value());
    const std::uint64_t cuts = stages * grid_.chunks;
    const bool has_ends = first || last;
    if (has_ends &&
        (grid_.pipeline < 2 || stages > grid_.pipeline || first.value_or(0) > layers_ || last.value_or(0) > layers_ ||
         ends > layers_ || first.value_or(0) % grid_.chunks != 0 || last.value_or(0) % grid_.chunks != 0))
      return refuse(
          fmt::format("--decoder-first and --decoder-last do not fit {} layers on {} stages", layers_, grid_.pipeline),
          {});
    const std::uint64_t rest = layers_ - ends;
    if (cuts == 0 ? rest != 0 : rest % cuts != 0)
      return refuse(fmt::format("{} layers cannot be divided among {} pipeline stages{}{}", rest, stages,
                                grid_.chunks > 1 ? fmt::format(" of {} chunks", grid_.chunks) : "",
                                has_ends ? ", besides those of --decoder-first and --decoder-last" : ""),
                    has_ends ? "" : nearest());
    grid_.first_stage = first;
    grid_.last_stage = last;
    grid_.first_layer.push_back(0);
    for (std::uint64_t c = 0; c < grid_.chunks; ++c)
      for (std::uint64_t p = 0; p < grid_.pipeline; ++p) {
        const bool is_first = p == 0 && first;
        const bool is_last = p + 1 == grid_.pipeline && last;
        const std::uint64_t count = is_first ? *first / grid_.chunks : is_last ? *last / grid_.chunks : rest / cuts;
        grid_.first_layer.push_back(grid_.first_layer.back() + count);
      }
    return {};
  }

  /// The next smaller number of stages among which the layers can be divided.
  std::string nearest() const {
    for (std::uint64_t stages = grid_.pipeline; stages-- > 1;)
      if (layers_ % (stages * grid_.chunks) == 0) return fmt::format("--pp {}", stages);
    return grid_.chunks > 1 ? "--vpp 1" : "";
  }

  const Value* args_;
  const TargetOptions& options_;
  std::uint64_t layers_;
  const std::string& target_;
  RankGrid grid_{};
};

}  // namespace

std::vector<std::pair<std::uint64_t, std::uint64_t>> StageRanks::numbers() const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> out;
  for (std::uint64_t rank = 0; rank < std::lcm(tensor, expert_tensor * expert); ++rank)
    out.emplace_back(rank % tensor, rank / expert_tensor % expert);
  std::ranges::sort(out);
  return out;
}

std::vector<RankPlace> RankGrid::places() const {
  std::vector<RankPlace> out;
  for (std::uint64_t p = 0; p < pipeline; ++p)
    for (const auto& [t, e] : stage().numbers()) out.push_back({.tensor = t, .pipeline = p, .expert = e});
  return out;
}

std::uint64_t RankGrid::writer(const RankPlace& place) const {
  return place.pipeline * tensor * data + stage().rank_of(place.tensor, place.expert);
}

std::string RankGrid::folder(const RankPlace& place) const {
  std::string out = fmt::format("mp_rank_{:02}", place.tensor);
  if (pipeline > 1) out += fmt::format("_{:03}", place.pipeline);
  if (expert > 1) out += fmt::format("_{:03}", place.expert);
  return out;
}

Result<RankGrid> rank_grid(const Value* args, const TargetOptions& options, std::uint64_t layers,
                           const std::string& target) {
  return GridBuild(args, options, layers, target).build();
}

}  // namespace ckpt::megatron
