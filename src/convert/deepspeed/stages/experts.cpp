#include "convert/deepspeed/stages/experts.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "format/text/parse_number.hpp"

namespace ckpt::deepspeed {
namespace {

/// Facts about one layer, by the part of its names before the number.
struct Layer {
  std::uint64_t index = 0;        // in num_experts
  std::uint64_t local_count = 0;  // trained experts of one expert-parallel rank
};
using Layers = std::map<std::string, Layer, std::less<>>;

Result<> add_weights(const StateFile& file, const ExpertFile& expert, Layers& layers, ModelStates& model) {
  CKPT_TRY(const auto entries, file.named_entries(file.root(), "expert"));
  for (const auto& [name, node] : entries) {
    const auto parts = expert_name(name);
    if (!parts || parts->number != expert.expert) {
      return fail(with_tensor(
          file.error(Errc::corrupt, name + ": not of expert " + std::to_string(expert.expert) + ", whose file this is"),
          name));
    }
    const auto [layer, added] = layers.emplace(std::string(parts->layer), Layer{.index = expert.layer});
    if (layer->second.index != expert.layer) {
      return fail(with_tensor(
          file.error(Errc::corrupt, name + ": of mixture-of-experts layer " + std::to_string(layer->second.index) +
                                        ", not " + std::to_string(expert.layer)),
          name));
    }
    CKPT_TRY(auto tensor, file.tensor(node, name));
    if (!tensor) {
      return fail(with_tensor(file.error(Errc::unsupported, name + ": not a tensor: not supported"), name));
    }
    if (model.buffer_names.count(parts->with(0))) model.buffer_names.insert(name);
    model.module.push_back({name, *std::move(tensor)});
  }
  return {};
}

/// Puts the experts of a layer after its gate, as in the module.
void order_as_module(ModelStates& model) {
  std::map<std::string, std::vector<NamedTensor>, std::less<>> experts;  // by the text before "deepspeed_moe."
  std::vector<NamedTensor> others;
  const auto before_layer = [](std::string_view name) {
    constexpr std::string_view kLayer = "deepspeed_moe.";
    const std::size_t at = name.rfind(kLayer);
    return at == std::string_view::npos ? std::string() : std::string(name.substr(0, at + kLayer.size()));
  };
  for (NamedTensor& entry : model.module) {
    (expert_name(entry.name) ? experts[before_layer(entry.name)] : others).push_back(std::move(entry));
  }
  model.module.clear();
  for (std::size_t i = 0; i < others.size(); ++i) {
    const std::string layer = before_layer(others[i].name);
    model.module.push_back(std::move(others[i]));
    const auto held = experts.find(layer);
    const bool last = i + 1 == others.size() || before_layer(others[i + 1].name) != layer;
    if (held == experts.end() || !last) continue;
    std::move(held->second.begin(), held->second.end(), std::back_inserter(model.module));
    experts.erase(held);
  }
  for (auto& [layer, held] : experts) std::move(held.begin(), held.end(), std::back_inserter(model.module));
}

auto corrupt_experts(const ModelStates& model, const std::string& what, const std::string& tensor) {
  return fail({.code = Errc::corrupt, .message = model.path + ": " + what, .file = model.path, .tensor = tensor});
}

/// Trained experts of one rank, by layer: their local numbers run from 0.
Result<> count_local_experts(const ModelStates& model, Layers& layers) {
  std::map<std::string, std::set<std::uint64_t>, std::less<>> numbers;
  for (const GroupShapes& group : *model.param_shapes) {
    for (const NamedShape& shape : group) {
      if (const auto parts = expert_name(shape.name)) numbers[std::string(parts->layer)].insert(parts->number);
    }
  }
  for (const auto& [name, local] : numbers) {
    const auto layer = layers.find(name);
    const std::uint64_t experts = layer == layers.end() ? 0 : model.num_experts[layer->second.index];
    if (experts == 0 || *local.rbegin() + 1 != local.size() || experts % local.size() != 0) {
      return corrupt_experts(model,
                             "param_shapes: " + name + ": " + std::to_string(local.size()) + " experts a rank, of " +
                                 std::to_string(experts),
                             name);
    }
    layer->second.local_count = local.size();
  }
  return {};
}

/// Names the members of a group of experts by global numbers. Nothing if it is a group of other parameters.
Result<> widen_group(std::size_t index, const Layers& layers, const ExpertShare& share,
                     const std::unordered_set<std::string>& weights, ModelStates& model) {
  GroupShapes& group = (*model.param_shapes)[index];
  std::uint64_t rank_count = 0;  // of all model-parallel ranks
  for (const NamedShape& shape : group) {
    const auto parts = expert_name(shape.name);
    std::uint64_t ranks = 1;
    if (parts) {
      const Layer& layer = layers.find(parts->layer)->second;
      ranks = model.num_experts[layer.index] / layer.local_count;
    }
    if (rank_count == 0) rank_count = ranks;
    if (rank_count != ranks || expert_name(group.front().name).has_value() != parts.has_value()) {
      return corrupt_experts(model, "param_shapes: " + shape.name + ": shares its group with parameters of other ranks",
                             shape.name);
    }
  }
  if (group.empty() || !expert_name(group.front().name)) return {};
  GroupShapes named;
  for (std::uint64_t rank = share.first; rank < rank_count; rank += share.stride) {
    for (const NamedShape& shape : group) {
      const ExpertName parts = *expert_name(shape.name);
      NamedShape& added = named.emplace_back(shape);
      added.name = parts.with(rank * layers.find(parts.layer)->second.local_count + parts.number);
      if (!weights.count(added.name)) {
        return corrupt_experts(model, added.name + ": the optimizer has a master for it, its expert's file no weight",
                               added.name);
      }
    }
  }
  model.expert_groups[index] = {std::move(group), rank_count / share.stride};
  group = std::move(named);
  return {};
}

}  // namespace

std::string ExpertName::with(std::uint64_t other) const {
  return std::string(layer) + std::to_string(other) + std::string(parameter);
}

std::optional<ExpertName> expert_name(std::string_view name) {
  constexpr std::string_view kMarker = "deepspeed_moe.experts.deepspeed_experts.";
  const std::size_t at = name.rfind(kMarker);
  if (at == std::string_view::npos || (at != 0 && name[at - 1] != '.')) return std::nullopt;
  const std::size_t digits = at + kMarker.size();
  std::string_view rest = name.substr(digits);
  const auto number = take_number<std::uint64_t>(rest);
  constexpr std::uint64_t kMaxNumber = std::uint64_t{1} << 32;
  if (!number || *number > kMaxNumber || !rest.starts_with('.')) return std::nullopt;
  return ExpertName{name.substr(0, digits), *number, rest};
}

Result<> add_experts(FileSet& set, const Tag& tag, const ExpertFiles& files, const ExpertShare& share,
                     ModelStates& model) {
  if (model.num_experts.empty()) return {};
  // The model file lists frozen experts under the first rank's local numbers; their weights are in the experts'
  // files.
  const auto of_expert = [](const auto& entry) { return expert_name(entry.name).has_value(); };
  std::erase_if(model.frozen, of_expert);
  std::erase_if(model.frozen_fragments, of_expert);
  Layers layers;
  for (const ExpertFile& expert : files) {
    CKPT_TRY(const StateFile file, set.open(path_in(tag, expert.name)));
    CKPT_CHECK(add_weights(file, expert, layers, model));
  }
  for (const auto& [name, layer] : layers) model.layer_experts.emplace(name, model.num_experts[layer.index]);
  order_as_module(model);
  if (!model.param_shapes) return {};
  CKPT_CHECK(count_local_experts(model, layers));
  std::unordered_set<std::string> weights;
  for (const NamedTensor& entry : model.module) weights.insert(entry.name);
  for (std::size_t g = 0; g < model.param_shapes->size(); ++g)
    CKPT_CHECK(widen_group(g, layers, share, weights, model));
  return {};
}

Result<ModelStates> model_of_expert_rank(const ModelStates& model, std::uint64_t expert_rank,
                                         std::uint64_t expert_ranks) {
  for (const auto& [layer, count] : model.layer_experts) {
    if (count % expert_ranks == 0) continue;
    return fail({.code = Errc::unsupported,
                 .message = model.path + ": " + layer + ": " + std::to_string(count) + " experts over " +
                            std::to_string(expert_ranks) + " expert-parallel ranks: not supported",
                 .file = model.path,
                 .tensor = layer,
                 .hint = kWhatIsRead});
  }
  ModelStates out{.path = model.path, .buffer_names = model.buffer_names, .shared = model.shared};
  for (const NamedTensor& entry : model.module) {
    const auto parts = expert_name(entry.name);
    const auto layer = parts ? model.layer_experts.find(parts->layer) : model.layer_experts.end();
    const bool mine =
        layer == model.layer_experts.end() || parts->number / (layer->second / expert_ranks) == expert_rank;
    if (mine) out.module.push_back(entry);
  }
  return out;
}

std::vector<std::uint64_t> ranks_of_experts(std::uint64_t expert_rank, std::uint64_t expert_ranks,
                                            std::uint64_t rank_count, bool data_before_experts) {
  const std::uint64_t sharing = rank_count / expert_ranks;
  std::vector<std::uint64_t> out;
  for (std::uint64_t i = 0; i < sharing; ++i) {
    out.push_back(data_before_experts ? expert_rank * sharing + i : expert_rank + i * expert_ranks);
  }
  return out;
}

bool order_groups(const ModelStates& model, std::uint64_t rank_count, OptimStates& states) {
  const std::size_t count = states.groups.size();
  if (model.expert_groups.empty() || states.part_counts.size() != count || states.hyper_groups.size() != count ||
      model.param_shapes->size() != count) {
    return false;
  }
  std::vector<std::size_t> order;  // of the rank's groups
  std::vector<char> taken(count, 0);
  for (std::size_t g = 0; g < count; ++g) {
    const auto experts = model.expert_groups.find(g);
    const std::uint64_t parts = rank_count / (experts == model.expert_groups.end() ? 1 : experts->second.rank_count);
    std::size_t at = 0;
    while (at < count && (taken[at] != 0 || states.part_counts[at] != parts)) ++at;
    if (at == count) return false;
    taken[at] = 1;
    order.push_back(at);
  }
  if (std::is_sorted(order.begin(), order.end())) return false;
  OptimStates ordered = states;
  for (std::size_t g = 0; g < count; ++g) {
    ordered.groups[g] = std::move(states.groups[order[g]]);
    ordered.part_counts[g] = states.part_counts[order[g]];
    ordered.hyper_groups[g] = std::move(states.hyper_groups[order[g]]);
    ordered.hyper_groups[g].members = {g};
  }
  states = std::move(ordered);
  return true;
}

std::string reordered_text(std::uint64_t ranks) {
  return std::to_string(ranks) + (ranks == 1 ? " rank stores its" : " ranks store their") +
         " groups of experts in a different order from rank 0; DeepSpeed can load them only if its processes use the "
         "same order again";
}

std::string check_part_counts(const ModelStates& model, const std::vector<std::uint64_t>& counts,
                              std::uint64_t rank_count) {
  for (std::size_t g = 0; g < counts.size(); ++g) {
    const auto experts = model.expert_groups.find(g);
    const std::uint64_t expert_ranks = experts == model.expert_groups.end() ? 1 : experts->second.rank_count;
    if (rank_count % expert_ranks == 0 && counts[g] == rank_count / expert_ranks) continue;
    return "partition_count: parameter group " + std::to_string(g) + " is shared by " + std::to_string(counts[g]) +
           " ranks, where " + std::to_string(rank_count) + " ranks have " + std::to_string(expert_ranks) +
           " sets of its parameters";
  }
  return {};
}

}  // namespace ckpt::deepspeed
