#include "convert/deepspeed/stages/weights.hpp"

#include <map>
#include <tuple>
#include <utility>

namespace ckpt::deepspeed {
namespace {

using ViewKey = std::tuple<std::uint32_t, std::string, std::uint64_t, std::string, Shape, std::vector<std::int64_t>>;

ViewKey key_of(const FileTensor& tensor) {
  const torch::TensorView& view = tensor.view;
  return {tensor.where.file, view.storage_key, view.storage_offset, view.dtype_name, view.shape, view.strides};
}

std::unordered_map<std::string, std::size_t> positions(const ModelStates& model) {
  std::unordered_map<std::string, std::size_t> out;
  for (std::size_t i = 0; i < model.module.size(); ++i) out.emplace(model.module[i].name, i);
  return out;
}

}  // namespace

std::unordered_set<std::string> trained_names(const std::vector<GroupShapes>& groups) {
  std::unordered_set<std::string> names;
  for (const GroupShapes& group : groups) {
    for (const NamedShape& shape : group) names.insert(shape.name);
  }
  return names;
}

std::vector<std::size_t> tied_to(const ModelStates& model, const std::unordered_set<std::string>& preferred,
                                 bool placeholders) {
  const auto position = positions(model);
  std::unordered_map<std::string, std::string> shared(model.shared.begin(), model.shared.end());
  // Entries of one key are one tensor. A tensor without elements has bytes nowhere: only a placeholder's storage
  // counts.
  std::map<ViewKey, std::size_t> holder;
  const auto rank = [&](const std::string& name) { return preferred.count(name) ? 2 : shared.count(name) ? 0 : 1; };
  const auto counts = [&](const NamedTensor& entry) {
    return entry.tensor.elements() > 0 || (placeholders && !model.buffer_names.count(entry.name));
  };
  for (std::size_t i = 0; i < model.module.size(); ++i) {
    const NamedTensor& entry = model.module[i];
    if (!counts(entry)) continue;
    const auto [at, added] = holder.emplace(key_of(entry.tensor), i);
    if (!added && rank(entry.name) > rank(model.module[at->second].name)) at->second = i;
  }
  std::vector<std::size_t> out(model.module.size());
  for (std::size_t i = 0; i < model.module.size(); ++i) {
    const NamedTensor& entry = model.module[i];
    out[i] = i;
    if (!counts(entry)) continue;
    out[i] = holder.at(key_of(entry.tensor));
    const auto tie = shared.find(entry.name);
    if (!placeholders || out[i] != i || tie == shared.end()) continue;
    const auto target = position.find(tie->second);
    if (target == position.end()) continue;
    const NamedTensor& data = model.module[target->second];
    out[i] = counts(data) ? holder.at(key_of(data.tensor)) : target->second;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[out[i]] != out[i]) out[i] = i;  // DeepSpeed ties to the owner of the data, never to another tie
  }
  return out;
}

Result<> place_weights(MapBuilder& builder, const ModelStates& model, const std::unordered_set<std::string>& trained) {
  const std::vector<std::size_t> holder = tied_to(model, trained, false);
  for (std::size_t i = 0; i < model.module.size(); ++i) {
    const NamedTensor& entry = model.module[i];
    if (holder[i] != i) {
      builder.add_alias(entry.name, model.module[holder[i]].name);
      continue;
    }
    CKPT_CHECK(builder.add_whole(module_tensor(entry, model.buffer_names.count(entry.name) != 0), entry.tensor.where));
  }
  const auto position = positions(model);
  for (const auto& [name, tensor] : model.frozen_fragments) {
    if (position.count(name)) continue;
    CKPT_CHECK(builder.add_whole({.name = name, .dtype = tensor.type.dtype, .shape = tensor.type.shape}, tensor.where));
  }
  for (const auto& [name, target] : model.shared) {
    const auto alias = position.find(name);
    const auto data = position.find(target);
    if (alias == position.end()) {
      if (data != position.end()) builder.add_alias(name, target);
      continue;
    }
    const bool tied = data != position.end() && holder[alias->second] == holder[data->second];
    // Without the frozen parameters (exclude_frozen_parameters) the second name of a tied one may be the only one left.
    if (tied || data == position.end() || model.module[alias->second].tensor.elements() == 0) continue;
    builder.find(Severity::warning, name + ": said to be tied to " + target + ", but stored by itself: both are kept",
                 {}, name);
  }
  for (const GroupShapes& group : model.param_shapes.value_or(std::vector<GroupShapes>{})) {
    for (const NamedShape& shape : group) {
      if (position.count(shape.name)) continue;
      builder.find(Severity::warning, shape.name + ": the optimizer has a master for it, the module has no weight", {},
                   shape.name);
    }
  }
  return {};
}

}  // namespace ckpt::deepspeed
