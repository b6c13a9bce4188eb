#include "convert/megatron/common_state.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "convert/left_out.hpp"
#include "convert/megatron/dict_members.hpp"
#include "convert/megatron/run_arguments.hpp"
#include "convert/model_arguments.hpp"
#include "format/model/object_tree.hpp"
#include "format/torch/value_pickle.hpp"

namespace ckpt::megatron {
namespace {

constexpr double kCheckpointVersion = 3.0;
constexpr std::string_view kRandomStates = "rng_state";
constexpr std::string_view kRerunStates = "rerun_state_machine";  ///< its items go with it

template <class T>
ValuePtr made(T content) {
  Value out;
  out.v = std::move(content);
  return std::make_shared<const Value>(std::move(out));
}

const Dict* as_dict(const ValuePtr& value) {
  return value == nullptr ? nullptr : std::get_if<Dict>(&value->v);
}

enum class Kept : std::uint8_t {
  here,       ///< in the common state
  elsewhere,  ///< an item of a data file ("rng_state/shard_0_1") that the target holds too
  of_rank,    ///< its rank's own, which other ranks cannot use
};

Kept kept_where(const std::string& name, const Path& path, const CommonParts& parts) {
  const std::string first = part_text(path.front());
  if (name.find(kItem) != std::string::npos) return Kept::elsewhere;
  const bool is_of_rank = first == kRandomStates || (first == kRerunStates && !parts.has_rerun_states);
  return is_of_rank ? Kept::of_rank : Kept::here;
}

class CommonBuild {
 public:
  CommonBuild(const WriteRequest& request, const CommonParts& parts) : request_(request), parts_(parts) {}

  Result<CommonState> build() {
    collect();
    if (const ValuePtr args = get(top_, kArguments))
      is_distributed_ = truth(member(*args, "use_distributed_optimizer")).value_or(true);
    set(top_, "iteration", made(static_cast<std::int64_t>(request_.source->meta.step.value_or(0))));
    if (get(top_, "checkpoint_version") == nullptr) set(top_, "checkpoint_version", made(kCheckpointVersion));
    set_arguments();
    std::vector<ValuePtr> optimizers;
    if (parts_.is_by_rank) {
      optimizers = take_optimizers();
    } else if (!parts_.has_buckets) {
      set_optimizer();
    }
    const std::vector<std::string> unwritable = torch::unwritable_classes(made(top_), torch::Loadable::anyhow);
    if (!unwritable.empty())
      return fail({.code = Errc::unsupported,
                   .message = fmt::format("{}: cannot write objects of these classes: {}", request_.target,
                                          fmt::join(unwritable, ", "))});
    CommonState out{.value = made(std::move(top_)),
                    .optimizers = std::move(optimizers),
                    .step = parts_.step ? parts_.step : step_,
                    .is_distributed = is_distributed_};
    add_left_out(out.notes, lost_, "Python object", "Python objects", parts_.form(), Skipped::training_state);
    add_left_out(out.notes, lost_arguments_, "argument", "arguments", parts_.form());
    return out;
  }

 private:
  void collect() {
    const FullPaths paths(*request_.source);
    const bool is_own = is_of_megatron(*request_.source);
    std::vector<TreeLeaf> leaves;
    if (const NamedObject* const args = run_arguments(request_))
      leaves.push_back({.path = {std::string(kArguments)}, .value = made(args->value.v)});
    for (const NamedObject& object : request_.objects) {
      if (object.name == kArguments) continue;
      Path path = paths.of(object.name, object.path);
      const Kept kept = is_own ? kept_where(object.name, path, parts_) : Kept::of_rank;
      if (kept == Kept::here) leaves.push_back({.path = std::move(path), .value = made(object.value.v)});
      if (kept == Kept::of_rank) lost_.push_back(object.name);
    }
    for (const std::string& name : parts_.tensors)
      leaves.push_back({.path = paths.of(name, {}), .value = made(TensorRef{.name = name})});
    const auto tree = build_tree(leaves);
    const auto* dict = tree ? std::get_if<Dict>(&tree->v) : nullptr;
    if (dict != nullptr) top_ = *dict;
  }

  void set_arguments() {
    const ValuePtr args = get(top_, kArguments);
    const auto* object = args == nullptr ? nullptr : std::get_if<Opaque>(&args->v);
    const Dict* state = object == nullptr ? nullptr : as_dict(object->state);
    if (state == nullptr) return;
    Dict changed;
    for (const auto& item : state->items) {
      // Enumerations of one release of Megatron-LM, which another one refuses to load.
      if (torch::unwritable_classes(item.second, torch::Loadable::weights_only).empty()) {
        changed.items.push_back(item);
      } else if (const std::string* name = text_of(item.first.get())) {
        lost_arguments_.push_back(*name);
      }
    }
    for (const auto& [name, value] : parts_.arguments) set(changed, name, value);
    if (!parts_.has_random_states) set(changed, "no_save_rng", made(true));
    if (!parts_.has_optimizer && !parts_.has_buckets) set(changed, "no_save_optim", made(true));
    Opaque out = *object;
    out.state = made(std::move(changed));
    set(top_, kArguments, made(std::move(out)));
  }

  std::vector<ValuePtr> take_optimizers() {
    const ValuePtr old = get(top_, "optimizer");
    remove(top_, "optimizer");
    remove(top_, "content_metadata");
    std::vector<ValuePtr> out;
    if (!parts_.has_optimizer || old == nullptr) return out;
    if (const auto* list = std::get_if<List>(&old->v)) {
      for (const ValuePtr& one : list->items) out.push_back(optimizer(one));
    } else if (is_numbered(as_dict(old))) {
      for (const auto& [number, one] : as_dict(old)->items) out.push_back(optimizer(one));
    } else {
      out.push_back(optimizer(old));
    }
    return out;
  }

  /// Of several optimizers, each by its number.
  static bool is_numbered(const Dict* dict) {
    return dict != nullptr && !dict->items.empty() &&
           std::holds_alternative<std::int64_t>(dict->items.front().first->v);
  }

  void set_optimizer() {
    Dict content;
    if (is_distributed_) {
      set(content, "distrib_optim_sharding_type", made(std::string("fully_reshardable")));
      set(content, "distrib_optim_fully_reshardable_mem_efficient", made(false));
    }
    set(content, "singleton_local_shards", made(false));
    set(content, "chained_optim_avoid_prefix", made(true));
    set(top_, "content_metadata", made(std::move(content)));
    const ValuePtr old = get(top_, "optimizer");
    if (!parts_.has_optimizer || old == nullptr) {
      return remove(top_, "optimizer");
    }
    Dict several;
    if (const auto* list = std::get_if<List>(&old->v)) {
      for (std::size_t i = 0; i < list->items.size(); ++i)
        several.items.emplace_back(made(static_cast<std::int64_t>(i)), optimizer(list->items[i]));
    } else if (is_numbered(as_dict(old))) {
      for (const auto& [number, one] : as_dict(old)->items) several.items.emplace_back(number, optimizer(one));
    } else {
      return set(top_, "optimizer", optimizer(old));
    }
    set(top_, "optimizer", made(std::move(several)));
  }

  /// One optimizer, without the state that is stored by weight.
  ValuePtr optimizer(const ValuePtr& old) {
    const Dict* dict = as_dict(old);
    if (dict == nullptr) return old;
    Dict out = *dict;
    remove(out, "fp32_from_fp16_params");
    remove(out, "param_state");
    if (const Dict* inner = as_dict(get(out, "optimizer"))) {
      set(out, "optimizer", inner_optimizer(*inner));
    } else {
      out = std::get<Dict>(inner_optimizer(out)->v);
    }
    remove(out, "param_state_sharding_type");
    if (is_distributed_ && !parts_.is_by_rank)
      set(out, "param_state_sharding_type", made(std::string("fully_reshardable")));
    return made(std::move(out));
  }

  ValuePtr inner_optimizer(Dict inner) {
    const ValuePtr old_state = get(inner, "state");
    if (const auto step = old_state == nullptr ? std::nullopt : real_number(member(old_state.get(), "common_step")))
      step_ = step;
    remove(inner, "state");
    const ValuePtr groups = get(inner, "param_groups");
    if (const auto* list = groups == nullptr ? nullptr : std::get_if<List>(&groups->v)) {
      List changed;
      for (const ValuePtr& one : list->items) changed.items.push_back(group(one));
      set(inner, "param_groups", made(std::move(changed)));
    }
    if (!is_distributed_ && parts_.step && !parts_.is_by_rank) {
      Dict state;
      set(state, "common_step", made(*parts_.step));
      set(inner, "state", made(std::move(state)));
    }
    return made(std::move(inner));
  }

  ValuePtr group(const ValuePtr& old) const {
    const Dict* dict = as_dict(old);
    if (dict == nullptr) return old;
    Dict out = *dict;
    remove(out, "params");  // each rank has its own
    if (is_distributed_ && parts_.step && get(out, "step") == nullptr)
      set(out, "step", made(static_cast<std::int64_t>(*parts_.step)));
    const ValuePtr betas = get(out, "betas");
    if (const auto* list = betas == nullptr ? nullptr : std::get_if<List>(&betas->v))
      set(out, "betas", made(List{.kind = List::Kind::tuple, .items = list->items}));
    return made(std::move(out));
  }

  const WriteRequest& request_;
  const CommonParts& parts_;
  Dict top_{};
  bool is_distributed_ = true;
  std::optional<double> step_{};  // that optimizers of torch_dist have in common
  std::vector<std::string> lost_{};
  std::vector<std::string> lost_arguments_{};
};

}  // namespace

bool is_of_megatron(const Map& map) {
  return map.format.starts_with("megatron") || map.origin.starts_with("megatron");
}

const NamedObject* run_arguments(const WriteRequest& request) {
  for (const std::vector<NamedObject>* objects : {&request.objects, &request.source->objects}) {
    const auto found = std::ranges::find(*objects, kArguments, &NamedObject::name);
    if (found != objects->end()) return &*found;
  }
  return nullptr;
}

Result<CommonState> common_state(const WriteRequest& request, const CommonParts& parts) {
  return CommonBuild(request, parts).build();
}

}  // namespace ckpt::megatron
