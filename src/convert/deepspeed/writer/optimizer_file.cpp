#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "convert/deepspeed/writer/expert_layout.hpp"
#include "convert/deepspeed/writer/partitions.hpp"
#include "convert/deepspeed/writer/state_files.hpp"
#include "format/model/cut.hpp"
#include "format/model/object_tree.hpp"

namespace ckpt::deepspeed {
namespace {

constexpr std::string_view kScalers = "deepspeed.runtime.fp16.loss_scaler.";

bool is_half(Dtype dtype) {
  return dtype == Dtype::f16 || dtype == Dtype::bf16;
}

const StateSlot* slot_of(const ModelTensor& entry, const std::string& name) {
  const auto at = std::ranges::find(entry.slots, name, &StateSlot::name);
  return at == entry.slots.end() ? nullptr : &*at;
}

/// Builds one optimizer file.
class OptimizerFile {
 public:
  OptimizerFile(const TrainingTarget& target, std::uint64_t rank)
      : target_(target), rank_(rank), archive_(*target.map, target.by_name) {}

  Result<TargetFile> build(std::string path, const std::string& id) {
    DictValue inner;
    if (target_.stage == 3) {
      CKPT_CHECK(add_partitioned(inner));
    } else {
      CKPT_CHECK(add_flat(inner));
    }
    DictValue root;
    root.set("optimizer_state_dict", std::move(inner).finish());
    root.set("ds_config", target_.config);
    root.set("ds_version", value_of(std::string_view(target_.version)));
    return archive_.finish(std::move(path), std::move(root).finish(), id);
  }

 private:
  /// The value in the source's optimizer under that name.
  ValuePtr kept(std::string_view name, ValuePtr otherwise) const {
    for (const auto& [key, value] : target_.optimizer) {
      if (key == name) return value;
    }
    return otherwise;
  }

  /// Stages 1 and 2 take the limit of the gradient norm from the file, if it has one, before their configuration; stage
  /// 3 ignores it, but a later conversion does not.
  void add_clipping(DictValue& inner) const {
    if (ValuePtr limit = kept("clip_grad", nullptr)) inner.set("clip_grad", std::move(limit));
  }

  /// The runs of one slot, or of the masters where `slot` is empty.
  std::vector<SourceRun> runs(const TargetGroup& group, const std::vector<std::size_t>& members, const FlatTensor& flat,
                              const std::string& slot) const {
    std::vector<SourceRun> out;
    out.reserve(flat.pieces.size());
    for (const FlatPiece& piece : flat.pieces) {
      const ModelTensor& entry = target_.state.model[group.members[members[piece.member]]];
      const StateSlot* stored = slot.empty() ? nullptr : slot_of(entry, slot);
      if (!slot.empty() && stored == nullptr) continue;  // never had a gradient: zero
      out.push_back({.tensor = slot.empty() ? target_.master_source(entry) : stored->tensor,
                     .elements = piece.elements,
                     .offset = piece.offset});
    }
    return out;
  }

  static std::vector<std::uint64_t> elements_of(const TargetGroup& group, const std::vector<std::size_t>& members) {
    std::vector<std::uint64_t> out;
    for (const std::size_t member : members) out.push_back(group.elements[member]);
    return out;
  }

  /// Stages 1 and 2 keep it for whole matrices, except on the CPU with `offload_optimizer`.
  /// source   deepspeed/runtime/zero/stage_1_and_2.py: _muon_momentum_buffer
  bool is_momentum_of_muon(const TargetGroup& group, const GroupSlot& slot) const {
    if (target_.stage == 3 || slot.name != "momentum_buffer") return false;
    const auto option = std::ranges::find(group.options, "use_muon", &std::pair<std::string, Value>::first);
    const auto* is_muon = option == group.options.end() ? nullptr : std::get_if<bool>(&option->second.v);
    return is_muon != nullptr && *is_muon;
  }

  /// The members that a flat tensor has any of, whole, end to end.
  static FlatTensor whole_members(const TargetGroup& group, const std::vector<std::size_t>& members,
                                  const FlatTensor& flat) {
    FlatTensor out;
    for (const FlatPiece& piece : flat.pieces) {
      const std::uint64_t elements = group.elements[members[piece.member]];
      out.pieces.push_back({.member = piece.member, .elements = {0, elements}, .offset = out.elements});
      out.elements += elements;
    }
    return out;
  }

  /// {"step": ..., "exp_avg": ...} of one flat tensor.
  ValuePtr slots_value(const TargetGroup& group, const std::vector<std::size_t>& members, const FlatTensor& flat) {
    DictValue out;
    if (ValuePtr step = step_value(archive_, group)) out.set("step", std::move(step));
    for (const auto& [name, value] : group.values) out.set(name, number_value(archive_, value));
    for (const GroupSlot& slot : group.slots) {
      const FlatTensor whole = is_momentum_of_muon(group, slot) ? whole_members(group, members, flat) : FlatTensor();
      const FlatTensor& form = whole.pieces.empty() ? flat : whole;
      out.set(slot.name, archive_.flat(form.elements, slot.dtype, runs(group, members, form, slot.name)));
    }
    return std::move(out).finish();
  }

  /// Where the parameters of a flat tensor lie in it: ds_to_universal.py looks there, loading does not.
  ValuePtr fragments(const TargetGroup& group, const std::vector<std::size_t>& members, const FlatTensor& flat) const {
    DictValue out;
    for (const FlatPiece& piece : flat.pieces) {
      DictValue fields;
      fields.set("numel", value_of(piece.elements.size()));
      fields.set("start", value_of(piece.offset));
      auto address = std::make_shared<Value>();
      address->v = Opaque{.global = "deepspeed.utils.tensor_fragment.fragment_address",
                          .args = list_of({}, List::Kind::tuple),
                          .state = std::move(fields).finish(),
                          .is_new = true};
      const std::string& name = target_.state.model[group.members[members[piece.member]]].name;
      out.set(local_name(target_, name), std::move(address));
    }
    return std::move(out).finish();
  }

  static ValuePtr numbered(std::vector<ValuePtr> items) {
    auto out = std::make_shared<Value>();
    Dict dict;
    for (std::size_t i = 0; i < items.size(); ++i) dict.items.emplace_back(value_of(std::uint64_t{i}), items[i]);
    out->v = std::move(dict);
    return out;
  }

  /// Stages 1 and 2. A new optimizer is written as a list of empty states: DeepSpeed then keeps the run's own options
  /// and state, which a state dict of torch.optim would replace.
  Result<> add_flat(DictValue& inner) {
    std::vector<ValuePtr> masters;
    std::vector<ValuePtr> states;
    std::vector<ValuePtr> groups;
    std::vector<ValuePtr> paddings;
    std::vector<ValuePtr> counts;
    std::vector<ValuePtr> mappings;
    for (std::size_t g = 0; g < target_.groups.size(); ++g) {
      const GroupShare share = share_of(target_, target_.groups[g], rank_);
      const TargetGroup& group = share.group;
      const auto members = flat_order(target_, share);
      CKPT_TRY(const FlatTensor flat, flat_partition(elements_of(group, members), share.parts, share.part));
      masters.push_back(archive_.flat(flat.elements - flat.padding, Dtype::f32, runs(group, members, flat, {})));
      if (target_.fresh) {
        states.push_back(DictValue().finish());
      } else {
        states.push_back(slots_value(group, members, flat));
      }
      groups.push_back(group_value(group, g, 1));
      paddings.push_back(value_of(flat.padding));
      counts.push_back(value_of(share.parts));
      mappings.push_back(fragments(group, members, flat));
    }
    if (has_dynamic_scale(target_)) inner.set("loss_scaler", loss_scaler(target_));
    inner.set("dynamic_loss_scale", value_of(has_dynamic_scale(target_)));
    inner.set("overflow", kept("overflow", value_of(false)));
    add_clipping(inner);
    if (target_.fresh) {
      inner.set("base_optimizer_state", list_of(std::move(states)));
      inner.set("base_optimizer_state_step", value_of(std::int64_t{0}));
    } else {
      DictValue base;
      base.set("state", numbered(std::move(states)));
      base.set("param_groups", list_of(std::move(groups)));
      inner.set("base_optimizer_state", std::move(base).finish());
    }
    inner.set("single_partition_of_fp32_groups", list_of(std::move(masters)));
    inner.set("zero_stage", value_of(target_.stage));
    inner.set("group_paddings", list_of(std::move(paddings)));
    inner.set("partition_count", list_of(std::move(counts)));
    inner.set("param_slice_mappings", list_of(std::move(mappings)));
    inner.set("ds_version", value_of(std::string_view(target_.version)));
    return {};
  }

  Result<> add_partitioned(DictValue& inner) {
    CKPT_TRY(const auto sub_groups, sub_groups_of(target_));
    std::vector<ValuePtr> masters;
    std::vector<ValuePtr> states;
    std::vector<std::uint64_t> counts(target_.groups.size(), 0);
    for (const SubGroup& sub : sub_groups) {
      const TargetGroup& group = target_.groups[sub.group];
      std::vector<std::size_t> members(sub.end - sub.begin);
      std::iota(members.begin(), members.end(), sub.begin);
      CKPT_TRY(const FlatTensor flat, parameter_partitions(elements_of(group, members), target_.dp, rank_));
      masters.push_back(archive_.flat(flat.elements, Dtype::f32, runs(group, members, flat, {})));
      if (!target_.fresh) states.push_back(slots_value(group, members, flat));
      ++counts[sub.group];
    }
    std::vector<ValuePtr> groups;
    std::uint64_t first = 0;
    for (std::size_t g = 0; g < target_.groups.size(); first += counts[g], ++g)
      groups.push_back(group_value(target_.groups[g], first, counts[g]));
    inner.set("zero_stage", value_of(std::int64_t{3}));
    inner.set("loss_scaler", loss_scaler(target_));
    inner.set("dynamic_loss_scale", value_of(has_dynamic_scale(target_)));
    inner.set("overflow", kept("overflow", value_of(false)));
    add_clipping(inner);
    inner.set("partition_count", value_of(target_.dp));
    DictValue optimizer;
    optimizer.set("state", numbered(std::move(states)));
    optimizer.set("param_groups", list_of(std::move(groups)));
    inner.set("optimizer_state_dict", std::move(optimizer).finish());
    inner.set("fp32_flat_groups", list_of(std::move(masters)));
    return {};
  }

  const TrainingTarget& target_;
  const std::uint64_t rank_;
  StateArchive archive_;
};

}  // namespace

Result<std::vector<SubGroup>> sub_groups_of(const TrainingTarget& target) {
  std::vector<SubGroup> out;
  for (std::size_t g = 0; g < target.groups.size(); ++g) {
    std::vector<std::uint64_t> parts;
    for (const std::uint64_t elements : target.groups[g].elements) {
      CKPT_TRY(const cut::Partition part, cut::partition({.length = elements, .part_count = target.dp}));
      parts.push_back(part.part_elements);
    }
    CKPT_TRY(const auto ends,
             cut::sub_groups({.part_elements = parts, .sub_group_elements = target.sub_group_elements}));
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      out.push_back({g, begin, end});
      begin = end;
    }
  }
  return out;
}

std::vector<std::size_t> flat_order(const TrainingTarget& target, const GroupShare& share) {
  const std::size_t members = share.group.members.size();
  if (target.round_robin) return cut::round_robin(members, share.parts);
  std::vector<std::size_t> out(members);
  std::iota(out.begin(), out.end(), std::size_t{0});
  return out;
}

Result<TargetFile> optimizer_file(const TrainingTarget& target, std::uint64_t rank, std::string path,
                                  const std::string& id) {
  return OptimizerFile(target, rank).build(std::move(path), id);
}

ValuePtr group_value(const TargetGroup& group, std::uint64_t first, std::uint64_t count) {
  DictValue out;
  for (const auto& [name, value] : group.options) out.set(name, std::make_shared<Value>(value));
  std::vector<ValuePtr> members;
  for (std::uint64_t i = 0; i < count; ++i) members.push_back(value_of(first + i));
  out.set("params", list_of(std::move(members)));
  return std::move(out).finish();
}

ValuePtr step_value(StateArchive& archive, const TargetGroup& group) {
  return group.step ? number_value(archive, *group.step) : nullptr;
}

ValuePtr number_value(StateArchive& archive, const Value& number) {
  const auto* real = std::get_if<double>(&number.v);
  const bool fits = real != nullptr && static_cast<double>(static_cast<float>(*real)) == *real;
  if (fits) return archive.scalar(static_cast<float>(*real));
  return std::make_shared<Value>(number);
}

/// The members of an object, with those of `defaults` that it lacks, as an earlier version of its class had none.
ValuePtr completed(const ValuePtr& state, const Dict& defaults) {
  const auto* own = state == nullptr ? nullptr : std::get_if<Dict>(&state->v);
  if (own == nullptr) return state;
  Dict out = *own;
  for (const auto& [key, value] : defaults.items) {
    const auto* name = std::get_if<std::string>(&key->v);
    if (name != nullptr && member(state.get(), *name) == nullptr) out.items.emplace_back(key, value);
  }
  auto made = std::make_shared<Value>();
  made->v = std::move(out);
  return made;
}

bool has_dynamic_scale(const TrainingTarget& target) {
  return target.model_dtype == Dtype::f16 && target.state.loss_scale && target.state.loss_scale->dynamic;
}

ValuePtr loss_scaler(const TrainingTarget& target) {
  const auto& scale = target.state.loss_scale;
  const auto* original = scale && scale->original ? std::get_if<Opaque>(&scale->original->v) : nullptr;
  const bool dynamic = has_dynamic_scale(target);
  const bool fits = dynamic || (scale && !scale->dynamic && (target.model_dtype == Dtype::f16 || scale->scale == 1));
  auto out = std::make_shared<Value>();
  DictValue fields;
  fields.set("cur_scale", value_of(dynamic ? scale->scale : 1.0));
  fields.set("dynamic", value_of(dynamic));
  if (dynamic) {
    fields.set("cur_iter", value_of(scale->iteration));
    fields.set("last_overflow_iter", value_of(scale->last_overflow));
    fields.set("scale_factor", value_of(scale->factor));
    fields.set("scale_window", value_of(scale->window));
    // Members of this scaler only, with DeepSpeed's values: config "fp16" defaults.
    fields.set("min_scale", value_of(std::int64_t{1}));
    fields.set("delayed_shift", value_of(std::int64_t{2}));
    fields.set("cur_hysteresis", value_of(std::int64_t{2}));
    fields.set("consecutive_hysteresis", value_of(false));
    fields.set("raise_error_at_min_scale", value_of(true));
    auto half = std::make_shared<Value>();
    half->v = Opaque{.global = "torch.float16", .args = nullptr, .state = nullptr};
    fields.set("dtype", std::move(half));
  }
  if (original != nullptr && original->global.starts_with(kScalers) && fits) {
    Opaque kept = *original;
    kept.state = completed(kept.state, std::get<Dict>(std::move(fields).finish()->v));
    out->v = std::move(kept);
    return out;
  }
  out->v = Opaque{.global = std::string(kScalers) + (dynamic ? "DynamicLossScaler" : "LossScaler"),
                  .args = list_of({}, List::Kind::tuple),
                  .state = std::move(fields).finish(),
                  .is_new = true};
  return out;
}

Result<TargetFile> expert_optimizer_file(const TrainingTarget& target, std::uint64_t expert_rank, std::string path,
                                         const std::string& id) {
  StateArchive archive(*target.map, target.by_name);
  const std::uint64_t sharing = target.dp / most_expert_ranks(target);
  DictValue root;
  CKPT_TRY(ValuePtr optimizer,
           whole_optimizer(target, target.data_before_experts ? expert_rank * sharing : expert_rank, archive));
  root.set("optimizer", std::move(optimizer));
  return archive.finish(std::move(path), std::move(root).finish(), id);
}

Result<ValuePtr> whole_optimizer(const TrainingTarget& target, std::uint64_t rank, StateArchive& archive) {
  Dict state;
  std::vector<ValuePtr> groups;
  std::vector<ValuePtr> masters;
  std::uint64_t number = 0;
  for (const TargetGroup& all : target.groups) {
    const TargetGroup group = share_of(target, all, rank).group;
    groups.push_back(group_value(group, number, group.members.size()));
    std::vector<ValuePtr> of_group;
    for (const std::size_t member : group.members) {
      const ModelTensor& entry = target.state.model[member];
      DictValue mine;
      if (const auto* step = std::get_if<std::uint32_t>(&entry.step)) {
        CKPT_TRY(ValuePtr value, archive.whole(*step, target.map->tensors[*step].dtype));
        mine.set("step", std::move(value));
      } else if (const auto* kept = std::get_if<Value>(&entry.step)) {
        mine.set("step", number_value(archive, *kept));
      }
      for (const auto& [name, value] : entry.values) mine.set(name, number_value(archive, value));
      for (const StateSlot& slot : entry.slots) {
        CKPT_TRY(ValuePtr value, archive.whole(slot.tensor, target.map->tensors[slot.tensor].dtype));
        mine.set(slot.name, std::move(value));
      }
      if (!mine.empty()) state.items.emplace_back(value_of(number), std::move(mine).finish());
      ++number;
      CKPT_TRY(ValuePtr master, archive.whole(target.master_source(entry), Dtype::f32));
      of_group.push_back(std::move(master));
    }
    masters.push_back(list_of(std::move(of_group)));
  }
  DictValue optimizer;
  auto states = std::make_shared<Value>();
  states->v = std::move(state);
  optimizer.set("state", std::move(states));
  optimizer.set("param_groups", list_of(std::move(groups)));
  if (!is_half(target.model_dtype)) return std::move(optimizer).finish();
  const bool dynamic = has_dynamic_scale(target);
  const auto& scale = target.state.loss_scale;
  DictValue out;
  out.set("dynamic_loss_scale", value_of(dynamic));
  out.set("cur_scale", value_of(dynamic ? scale->scale : 1.0));
  out.set("cur_iter", value_of(scale ? scale->iteration : target.state.counters.steps.value_or(0)));
  if (dynamic) {
    out.set("last_overflow_iter", value_of(scale->last_overflow));
    out.set("scale_factor", value_of(scale->factor));
    out.set("scale_window", value_of(scale->window));
  }
  out.set("optimizer_state_dict", std::move(optimizer).finish());
  out.set("fp32_groups", list_of(std::move(masters)));
  return std::move(out).finish();
}

}  // namespace ckpt::deepspeed
