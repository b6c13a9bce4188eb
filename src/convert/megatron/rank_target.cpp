#include "convert/megatron/rank_target.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "convert/megatron/buffer_layout.hpp"
#include "convert/megatron/dict_members.hpp"
#include "convert/megatron/optimizer_state.hpp"
#include "convert/megatron/rank_files.hpp"
#include "convert/model_arguments.hpp"
#include "format/model/object_tree.hpp"
#include "format/torch/tensor_pickle.hpp"

namespace ckpt::megatron {
namespace {

ValuePtr shared(Dict dict) {
  auto out = std::make_shared<Value>();
  out->v = std::move(dict);
  return out;
}

/// torch.bfloat16
ValuePtr torch_type(Dtype dtype) {
  auto out = std::make_shared<Value>();
  out->v = Opaque{.global = "torch." + std::string(torch::torch_dtype(dtype)), .args = nullptr, .state = nullptr};
  return out;
}

using RankChunks = std::vector<std::vector<RankWeight>>;  ///< weights of each chunk of a rank's stage

/// One of a rank's files.
class RankArchive {
 public:
  RankArchive(const RankTarget& target, const RankPlace& place, const RankChunks& chunks)
      : target_(target), place_(place), chunks_(chunks), archive_(*target.map, target.by_name) {}

  Result<TargetFile> model_file(const ValuePtr& common, std::string path) {
    Dict top = std::get<Dict>(common->v);
    set_writer(top);
    for (std::size_t c = 0; c < chunks_.size(); ++c)
      set(top, chunks_.size() == 1 ? "model" : "model" + std::to_string(c), state_dict(c));
    std::vector<ValuePtr> optimizers;
    for (const RankOptimizer& one : target_.optimizers)
      optimizers.push_back(target_.is_distributed ? one.common : numbered(one));
    if (optimizers.size() == 1) set(top, "optimizer", optimizers.front());
    if (optimizers.size() > 1) set(top, "optimizer", list_of(std::move(optimizers)));
    return archive_.finish(std::move(path), shared(std::move(top)), target_.id);
  }

  Result<TargetFile> optimizer_file(std::string path) {
    std::vector<ValuePtr> states;
    for (const RankOptimizer& one : target_.optimizers) {
      const bool is_here = target_.grid.stage().is_first(place_.tensor, place_.expert, one.is_of_experts);
      states.push_back(is_here ? flat(one) : none_value());
    }
    const ValuePtr root = states.size() == 1 ? states.front() : list_of(std::move(states));
    return archive_.finish(std::move(path), root, target_.id);
  }

 private:
  /// By it files that were exchanged are noticed.
  void set_writer(Dict& top) const {
    const ValuePtr args = get(top, kArguments);
    const auto* object = args == nullptr ? nullptr : std::get_if<Opaque>(&args->v);
    const auto* state = object == nullptr || object->state == nullptr ? nullptr : std::get_if<Dict>(&object->state->v);
    if (state == nullptr) return;
    Dict changed = *state;
    set(changed, "rank", value_of(target_.grid.writer(place_)));
    auto out = std::make_shared<Value>(*args);
    std::get<Opaque>(out->v).state = shared(std::move(changed));
    set(top, kArguments, std::move(out));
  }

  const WeightState& state_of(const RankWeight& weight) const { return target_.states[weight.whole]; }

  bool is_of(const RankWeight& weight, bool of_experts) const {
    return state_of(weight).is_trained && (weight.is_expert && target_.grid.expert > 1) == of_experts;
  }

  void put(std::size_t storage, std::uint64_t offset, const RankWeight& weight, std::uint32_t tensor) {
    for (const Box& box : weight.boxes) {
      archive_.put(storage, offset, tensor, box);
      offset += volume(box.size);
    }
  }

  std::vector<RankBuffer> buffers(std::size_t chunk, bool of_experts) const {
    const auto dtype_of = [&](const RankWeight& weight) {
      return is_of(weight, of_experts) ? std::optional(state_of(weight).dtype) : std::nullopt;
    };
    const bool has_buckets = place_.pipeline == 0 && chunk == 0;
    return rank_buffers(chunks_[chunk], dtype_of, has_buckets ? target_.bucket : std::nullopt);
  }

  ValuePtr whole(const RankWeight& weight, std::uint32_t tensor, Dtype dtype) {
    const std::size_t storage = archive_.storage(volume(weight.shape), dtype);
    put(storage, 0, weight, tensor);
    return archive_.view(storage, 0, weight.shape);
  }

  /// Weights of the distributed optimizer are views of the buffers.
  ValuePtr state_dict(std::size_t chunk) {
    const std::vector<RankWeight>& weights = chunks_[chunk];
    std::vector<ValuePtr> views(weights.size());
    if (target_.is_distributed)
      for (const bool of_experts : {false, true})
        for (const RankBuffer& buffer : buffers(chunk, of_experts)) {
          const std::size_t storage = archive_.storage(buffer.layout.elements, buffer.dtype);
          for (std::size_t i = 0; i < buffer.weights.size(); ++i) {
            const RankWeight& weight = weights[buffer.weights[i]];
            const std::uint64_t offset = buffer.layout.places[i].joined;
            put(storage, offset, weight, state_of(weight).weight);
            views[buffer.weights[i]] = archive_.view(storage, offset, weight.shape);
          }
        }
    Dict out{.kind = Dict::Kind::ordered};
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const RankWeight& weight = weights[i];
      if (views[i] == nullptr) views[i] = whole(weight, state_of(weight).weight, state_of(weight).dtype);
      out.items.emplace_back(value_of(std::string_view(weight.name)), views[i]);
      // Of modules that divide a weight: Transformer Engine keeps there what FP8 needs, and nothing otherwise.
      const std::string_view module = module_of(weight.name);
      const bool is_last = i + 1 == weights.size() || module_of(weights[i + 1].name) != module;
      if (is_last && has_extra_state(module))
        out.items.emplace_back(value_of(std::string(module) + "._extra_state"), none_value());
    }
    return shared(std::move(out));
  }

  static std::string_view module_of(std::string_view name) { return name.substr(0, name.rfind('.')); }
  static bool has_extra_state(std::string_view module) {
    const std::string_view own = module.substr(module.rfind('.') + 1);
    return own.starts_with("linear_") || own == "output_layer" || own == "eh_proj";
  }

  /// {0: {(torch.bfloat16, torch.float32): {"param": ..., "exp_avg": ...}}, ...}, by buffer.
  ValuePtr flat(const RankOptimizer& optimizer) {
    Dict out;
    out.items.emplace_back(value_of(std::string_view("buckets_coalesced")), value_of(true));
    std::int64_t number = 0;
    for (std::size_t c = 0; c < chunks_.size(); ++c)
      for (const RankBuffer& buffer : buffers(c, optimizer.is_of_experts)) {
        DictValue fields;
        fields.set("param", flat_tensor(c, buffer, {}));
        for (const std::string& slot : target_.slots) fields.set(slot, flat_tensor(c, buffer, slot));
        fields.set("numel_unpadded", value_of(buffer.layout.elements));
        const Dtype gradient = target_.reduces_in_fp32 ? Dtype::f32 : buffer.dtype;
        Dict by_type;
        by_type.items.emplace_back(list_of({torch_type(buffer.dtype), torch_type(gradient)}, List::Kind::tuple),
                                   std::move(fields).finish());
        out.items.emplace_back(value_of(number++), shared(std::move(by_type)));
      }
    return shared(std::move(out));
  }

  ValuePtr flat_tensor(std::size_t chunk, const RankBuffer& buffer, const std::string& slot) {
    const std::size_t storage = archive_.storage(buffer.layout.elements, Dtype::f32);
    for (std::size_t i = 0; i < buffer.weights.size(); ++i) {
      const RankWeight& weight = chunks_[chunk][buffer.weights[i]];
      put(storage, buffer.layout.places[i].joined, weight, tensor_of(weight, slot));
    }
    return archive_.view(storage, 0, {buffer.layout.elements});
  }

  /// slot  "" = the master
  std::uint32_t tensor_of(const RankWeight& weight, const std::string& slot) const {
    const WeightState& state = state_of(weight);
    return slot.empty() ? state.master.value_or(state.weight) : state.slots.at(slot);
  }

  /// The state dict of an optimizer that numbers its weights, group by group.
  ValuePtr numbered(const RankOptimizer& optimizer) {
    Dict outer = std::get<Dict>(optimizer.common->v);
    const ValuePtr nested = get(outer, "optimizer");
    Dict inner = nested == nullptr ? outer : std::get<Dict>(nested->v);
    std::vector<ValuePtr> groups;
    std::vector<ValuePtr> masters;
    Dict states;
    for (const ValuePtr& group : parameter_groups(*optimizer.common)->items)
      groups.push_back(numbered_group(*group, optimizer.is_of_experts, states, masters));
    set(inner, "state", shared(std::move(states)));
    set(inner, "param_groups", list_of(std::move(groups)));
    if (nested == nullptr) return shared(std::move(inner));
    set(outer, "optimizer", shared(std::move(inner)));
    set(outer, "fp32_from_fp16_params", list_of(std::move(masters)));
    return shared(std::move(outer));
  }

  ValuePtr numbered_group(const Value& group, bool of_experts, Dict& states, std::vector<ValuePtr>& masters) {
    const bool has_decay = real_number(ckpt::member(&group, "wd_mult")) != 0.0;
    Dict out = std::get<Dict>(group.v);
    std::vector<ValuePtr> ids;
    std::vector<ValuePtr> own_masters;
    for (const std::vector<RankWeight>& weights : chunks_)
      for (const RankWeight& weight : weights) {
        if (!is_of(weight, of_experts) || is_decayed(weight.name, weight.shape) != has_decay) continue;
        const WeightState& state = state_of(weight);
        const ValuePtr id = value_of(static_cast<std::uint64_t>(states.items.size()));
        DictValue slots;
        if (target_.step) slots.set("step", archive_.scalar(static_cast<float>(*target_.step)));
        for (const std::string& slot : target_.slots) slots.set(slot, whole(weight, state.slots.at(slot), Dtype::f32));
        states.items.emplace_back(id, std::move(slots).finish());
        ids.push_back(id);
        if (state.dtype != Dtype::f32) own_masters.push_back(whole(weight, tensor_of(weight, {}), Dtype::f32));
      }
    set(out, "params", list_of(std::move(ids)));
    masters.push_back(list_of(std::move(own_masters)));
    return shared(std::move(out));
  }

  const RankTarget& target_;
  const RankPlace& place_;
  const RankChunks& chunks_;
  StateArchive archive_;
};

}  // namespace

const List* parameter_groups(const Value& optimizer) {
  const Value* inner = ckpt::member(&optimizer, "optimizer");
  const Value* groups = ckpt::member(inner == nullptr ? &optimizer : inner, "param_groups");
  return groups == nullptr ? nullptr : std::get_if<List>(&groups->v);
}

Result<std::vector<TargetFile>> rank_target_files(const RankTarget& target, const RankPlace& place,
                                                  const ValuePtr& common, const std::string& folder) {
  RankChunks chunks;
  for (std::uint64_t c = 0; c < target.grid.chunks; ++c) chunks.push_back(target.division.chunk(place, c));
  std::vector<TargetFile> out;
  CKPT_TRY(TargetFile model, RankArchive(target, place, chunks).model_file(common, join_path(folder, kModelFile)));
  out.push_back(std::move(model));
  if (!target.is_distributed || target.optimizers.empty()) return out;
  CKPT_TRY(TargetFile state, RankArchive(target, place, chunks).optimizer_file(join_path(folder, kOptimizerFile)));
  out.push_back(std::move(state));
  return out;
}

}  // namespace ckpt::megatron
