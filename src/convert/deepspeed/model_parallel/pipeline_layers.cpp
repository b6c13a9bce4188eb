#include "convert/deepspeed/model_parallel/pipeline_layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "convert/deepspeed/model_parallel/sliced_tensors.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::deepspeed {

std::optional<std::pair<std::uint64_t, std::string_view>> split_layer_name(std::string_view name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto number = parse_number<std::uint64_t>(name.substr(0, dot));
  if (!number) return std::nullopt;
  return std::pair(*number, name.substr(dot + 1));
}

Result<PipelineLayers> PipelineLayers::read(FileSet& set, const Tag& tag, const std::vector<LayerFile>& files,
                                            std::uint64_t tensor_ranks) {
  PipelineLayers out;
  out.tag_ = &tag;
  out.tensor_ranks_ = tensor_ranks;
  for (const LayerFile& layer : files) {
    const std::string path = path_in(tag, layer.name);
    if (layer.tensor_rank >= tensor_ranks) {
      return fail({.code = Errc::corrupt,
                   .message = path + ": belongs to a save with more than " + std::to_string(tensor_ranks) +
                              " tensor-parallel ranks",
                   .file = path});
    }
    CKPT_TRY(const StateFile file, set.open(path));
    CKPT_TRY(const auto entries, file.named_entries(file.root(), "layer"));
    Layer read{.number = layer.layer, .tensor_rank = layer.tensor_rank, .path = path};
    for (const auto& [name, node] : entries) {
      CKPT_TRY(auto tensor, file.tensor(node, name));
      if (!tensor) {
        return fail(with_tensor(file.error(Errc::unsupported, name + ": not a tensor: not supported"), name));
      }
      read.tensors.push_back({name, *std::move(tensor)});
    }
    out.layers_.push_back(std::move(read));
  }
  return out;
}

std::string PipelineLayers::path_of(std::uint64_t number, std::uint64_t tensor_rank) const {
  const std::string rank = tensor_ranks_ > 1 ? fmt::format("-model_{:02}", tensor_rank) : std::string();
  return path_in(*tag_, fmt::format("layer_{:02}{}-model_states.pt", number, rank));
}

const PipelineLayers::Layer* PipelineLayers::find(std::uint64_t number, std::uint64_t tensor_rank) const {
  const auto key = [](const Layer& layer) { return std::pair(layer.number, layer.tensor_rank); };
  const auto at = std::ranges::lower_bound(layers_, std::pair(number, tensor_rank), {}, key);
  return at != layers_.end() && key(*at) == std::pair(number, tensor_rank) ? &*at : nullptr;
}

/// A numbered parameter is in its layer's file. A tied one is in a file that no numbered parameter names; if several
/// have such a tensor it is unknown which.
const NamedTensor* PipelineLayers::find_parameter(const std::string& name, std::uint64_t elements,
                                                  std::uint64_t tensor_rank,
                                                  const std::set<std::uint64_t>& numbered) const {
  const auto in = [&](const Layer& layer, std::string_view called) -> const NamedTensor* {
    const auto at = std::ranges::find(layer.tensors, called, &NamedTensor::name);
    return at == layer.tensors.end() || at->tensor.elements() != elements ? nullptr : &*at;
  };
  if (const auto split = split_layer_name(name)) {
    const Layer* layer = find(split->first, tensor_rank);
    return layer == nullptr ? nullptr : in(*layer, split->second);
  }
  const std::size_t key_end = name.starts_with(kTiedModules) ? name.find('.', kTiedModules.size()) : std::string::npos;
  if (key_end == std::string::npos) return nullptr;
  const std::string_view called = std::string_view(name).substr(key_end + 1);
  const NamedTensor* found = nullptr;
  for (const Layer& layer : layers_) {
    if (layer.tensor_rank != tensor_rank || numbered.count(layer.number) != 0) continue;
    const NamedTensor* tensor = in(layer, called);
    if (tensor == nullptr) continue;
    if (found != nullptr && found->tensor.type.shape != tensor->tensor.type.shape) return nullptr;
    found = tensor;
  }
  return found;
}

Result<std::vector<GroupShapes>> PipelineLayers::shapes_from_fragments(const std::vector<OptimStates>& ranks,
                                                                       std::uint64_t tensor_rank) const {
  std::vector<GroupShapes> out(ranks.front().groups.size());
  std::set<std::uint64_t> numbered;
  for (std::size_t g = 0; g < out.size(); ++g) {
    std::unordered_map<std::string_view, std::size_t> place;
    for (const OptimStates& rank : ranks) {
      if (g >= rank.groups.size()) continue;  // a different number of groups is reported where the groups are joined
      for (const auto& [name, part] : rank.groups[g].fragments) {
        const auto [at, added] = place.emplace(name, out[g].size());
        if (added) out[g].push_back({.name = name});
        out[g][at->second].elements += part.size();
        if (const auto split = split_layer_name(name)) numbered.insert(split->first);
      }
    }
  }
  for (GroupShapes& group : out) {
    for (NamedShape& parameter : group) {
      const NamedTensor* tensor = find_parameter(parameter.name, parameter.elements, tensor_rank, numbered);
      if (tensor == nullptr) {
        const auto split = split_layer_name(parameter.name);
        const bool absent = split && find(split->first, tensor_rank) == nullptr;
        const std::string file = absent ? path_of(split->first, tensor_rank) : ranks.front().path;
        return fail({.code = Errc::incomplete,
                     .message = absent ? file + ": the file is missing"
                                       : fmt::format("{}: no layer file holds a weight of its {} elements",
                                                     parameter.name, parameter.elements),
                     .file = file,
                     .tensor = parameter.name,
                     .hint = "each rank writes its own file: copy the missing ones from the nodes that wrote them"});
      }
      parameter.shape = tensor->tensor.type.shape;
    }
  }
  return out;
}

std::optional<std::vector<std::vector<NamedTensor>>> PipelineLayers::stage_modules(
    const std::unordered_set<std::string>& buffers, const std::vector<std::vector<UnnamedGroup>>& groups,
    std::uint64_t tensor_rank) const {
  std::vector<LayerShapes> shapes;
  std::vector<std::vector<NamedTensor>> trained;
  for (const Layer& layer : layers_) {
    if (layer.tensor_rank != tensor_rank) continue;
    LayerShapes held;
    std::vector<NamedTensor> named;
    for (const NamedTensor& entry : layer.tensors) {
      std::string name = std::to_string(layer.number) + "." + entry.name;
      if (buffers.count(name) != 0 || entry.tensor.elements() == 0) continue;
      held.shapes.push_back(entry.tensor.type.shape);
      named.push_back({std::move(name), entry.tensor});
    }
    if (named.empty()) continue;
    shapes.push_back(std::move(held));
    trained.push_back(std::move(named));
  }
  const auto division = assign_layers(shapes, groups);
  if (!division) return std::nullopt;
  std::vector<std::vector<NamedTensor>> out;
  for (const auto& stage : *division) {
    std::vector<NamedTensor>& module = out.emplace_back();
    for (const auto& [layer, tensor] : stage) module.push_back(trained[layer][tensor]);
  }
  return out;
}

}  // namespace ckpt::deepspeed
