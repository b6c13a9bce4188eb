#include "convert/deepspeed/stages/flat_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>

#include "convert/deepspeed/stages/declared_fragments.hpp"
#include "convert/deepspeed/stages/experts.hpp"
#include "format/checked.hpp"
#include "format/model/cut.hpp"
#include "format/model/same_value.hpp"

namespace ckpt::deepspeed {
namespace {

std::string group_text(std::size_t group) {
  return "parameter group " + std::to_string(group);
}

auto corrupt(const std::string& file, const std::string& what) {
  return fail({.code = Errc::corrupt, .message = file + ": " + what, .file = file});
}

using Weights = std::unordered_map<std::string, const FileTensor*>;  // by name

/// Where each parameter begins in its flat group, and the group's elements without the padding at its end.
struct FlatOrder {
  std::vector<std::uint64_t> begins;
  std::uint64_t element_count = 0;
};

Result<FlatOrder> flat_order(const GroupShapes& shapes, const GroupRanks& ranks) {
  const auto& paddings = ranks[0].alignment_paddings;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].alignment_paddings == paddings) continue;
    return corrupt(ranks.file(r).path,
                   group_text(ranks.group()) + ": param_alignment_paddings differ from those of " + ranks.file(0).path);
  }
  if (!paddings.empty() && paddings.size() != shapes.size()) {
    return corrupt(ranks.file(0).path, group_text(ranks.group()) + ": " + std::to_string(paddings.size()) +
                                           " param_alignment_paddings for " + std::to_string(shapes.size()) +
                                           " parameters");
  }
  FlatOrder order;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    order.begins.push_back(order.element_count);
    CKPT_TRY(order.element_count, checked_add(order.element_count, shapes[i].elements));
    if (!paddings.empty()) {
      CKPT_TRY(order.element_count, checked_add(order.element_count, paddings[i]));
    }
  }
  return order;
}

/// The cut that explains the masters' counts: aligned to 2 x ranks, or to the ranks alone (before 2021-09), with the
/// padding stripped or (early releases) kept.
Result<cut::FlatGroup> find_cut(std::uint64_t element_count, const GroupRanks& ranks) {
  cut::FlatGroup usual;
  for (const std::uint64_t factor : {std::uint64_t{2}, std::uint64_t{1}}) {
    CKPT_TRY(const cut::FlatGroup tried,
             cut::flat_group({.element_count = element_count, .part_count = ranks.size(), .align_factor = factor}));
    if (factor == 2) usual = tried;
    bool stripped = true;
    bool kept = true;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const std::uint64_t elements = ranks[r].master.elements;
      stripped = stripped && elements == tried.owned(r).size();
      kept = kept && ranks.file(r).padding_kept && elements == tried.part_elements;
    }
    if (stripped || kept) return tried;
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::uint64_t elements = ranks[r].master.elements;
    if (elements == usual.owned(r).size()) continue;
    return corrupt(ranks.file(r).path,
                   group_text(ranks.group()) + ": " + std::to_string(elements) + " fp32 elements, but rank " +
                       std::to_string(r) + " of " + std::to_string(ranks.size()) + " holds " +
                       std::to_string(usual.owned(r).size()) + " of " + std::to_string(element_count));
  }
  return corrupt(ranks.file(0).path, group_text(ranks.group()) + ": it is not known how its elements are cut");
}

/// In stages 1 and 2 the weights of a group are views of one flat tensor, so their offsets prove the order.
Result<> check_weight_offsets(const ModelStates& model, std::span<const NamedShape> shapes, const FlatOrder& order,
                              const Weights& weights, std::size_t group) {
  const FileTensor* first = nullptr;
  for (const NamedShape& shape : shapes) {
    const auto weight = weights.find(shape.name);
    if (weight == weights.end()) return {};
    if (shape.elements == 0) continue;
    if (first == nullptr) first = weight->second;
    const bool one_storage =
        weight->second->where.file == first->where.file && weight->second->view.storage_key == first->view.storage_key;
    if (!one_storage) return {};  // stored one by one: no evidence
  }
  if (first == nullptr || shapes.size() < 2) return {};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const torch::TensorView& view = weights.at(shapes[i].name)->view;
    if (shapes[i].elements == 0 || view.storage_offset == order.begins[i]) continue;
    return fail({.code = Errc::corrupt,
                 .message = model.path + ": " + shapes[i].name + ": " + group_text(group) +
                            ": its weight lies at element " + std::to_string(view.storage_offset) +
                            ", param_shapes puts it at " + std::to_string(order.begins[i]) +
                            ": the order of the group is not known",
                 .file = model.path,
                 .tensor = shapes[i].name,
                 .hint = model.facts.version.empty() ? "" : "written by DeepSpeed " + model.facts.version});
  }
  return {};
}

Result<> check_weight_shapes(const ModelStates& model, std::span<const NamedShape> shapes, const Weights& weights) {
  for (const NamedShape& shape : shapes) {
    const auto weight = weights.find(shape.name);
    if (weight == weights.end() || weight->second->type.shape == shape.shape) continue;
    return fail({.code = Errc::corrupt,
                 .message = model.path + ": " + shape.name + ": its shape in param_shapes differs from the module's",
                 .file = model.path,
                 .tensor = shape.name});
  }
  return {};
}

/// Muon's momentum: each rank has the parameters that its part touches, whole and end to end.
/// source   deepspeed/runtime/zero/stage_1_and_2.py: _muon_momentum_buffer
class WholeParameters {
 public:
  WholeParameters(const GroupShapes& shapes, const FlatOrder& order, const cut::FlatGroup& cut, std::size_t rank_count)
      : elements_(rank_count, 0) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      std::vector<Place>& places = places_.emplace_back();
      if (shapes[i].elements == 0) {
        places.push_back({0, 0});
        continue;
      }
      const std::uint64_t last = cut.part_of(order.begins[i] + shapes[i].elements - 1);
      for (std::uint64_t r = cut.part_of(order.begins[i]); r <= last; ++r) {
        places.push_back({r, elements_[r]});
        elements_[r] += shapes[i].elements;
      }
    }
  }

  bool are_in(const GroupRanks& ranks, std::size_t slot) const {
    if (ranks[0].slots[slot].first != "momentum_buffer") return false;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (ranks[r].slots[slot].second.elements != elements_[r]) return false;
    }
    return true;
  }

  std::vector<PartitionIndex::Source> copies(const GroupRanks& ranks, std::size_t slot, std::size_t parameter) const {
    std::vector<PartitionIndex::Source> out;
    for (const auto& [rank, begin] : places_[parameter]) {
      const Run& run = ranks[rank].slots[slot].second;
      out.emplace_back(Locator{.file = run.file,
                               .offset = run.offset + begin * unit_bytes(run.dtype),
                               .dtype = run.dtype,
                               .big_endian = run.big_endian,
                               .crc = run.crc});
    }
    return out;
  }

 private:
  struct Place {
    std::size_t rank = 0;
    std::uint64_t begin = 0;  // in the rank's elements
  };
  std::vector<std::vector<Place>> places_{};  // of each parameter
  std::vector<std::uint64_t> elements_;       // of each rank
};

/// Moments keep the padding, except where elastic_checkpoint stripped it.
Result<> check_slot_counts(const cut::FlatGroup& cut, const GroupRanks& ranks, const std::vector<bool>& whole) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (std::size_t s = 0; s < ranks[r].slots.size(); ++s) {
      const auto& [slot, run] = ranks[r].slots[s];
      if (whole[s] || run.elements == cut.part_elements || run.elements == cut.owned(r).size()) continue;
      return fail(wrong_slot_count(ranks.file(r).path,
                                   group_text(ranks.group()) + ": " + slot + " has " + std::to_string(run.elements) +
                                       " elements, but rank " + std::to_string(r) + " holds " +
                                       std::to_string(cut.part_elements),
                                   slot));
    }
  }
  return {};
}

/// One flat group to lay out.
struct GroupTask {
  MapBuilder& builder;
  const ModelStates& model;
  const Weights& weights;
  const GroupShapes& stored;          // as the ranks' files name the parameters
  std::span<const NamedShape> named;  // the same under the names that the map has
  const GroupRanks ranks;
};

Result<> lay_out_group(const GroupTask& task, std::vector<FlatParameter>& out) {
  const GroupRanks& ranks = task.ranks;
  CKPT_CHECK(check_weight_shapes(task.model, task.named, task.weights));
  CKPT_TRY(const FlatOrder order, flat_order(task.stored, ranks));
  CKPT_TRY(const cut::FlatGroup cut, find_cut(order.element_count, ranks));
  CKPT_CHECK(check_same_slots(ranks));
  std::vector<bool> whole;
  const WholeParameters parameters(task.stored, order, cut, ranks.size());
  for (std::size_t s = 0; s < ranks[0].slots.size(); ++s) whole.push_back(parameters.are_in(ranks, s));
  CKPT_CHECK(check_slot_counts(cut, ranks, whole));
  CKPT_CHECK(check_weight_offsets(task.model, task.named, order, task.weights, ranks.group()));
  if (!task.model.facts.round_robin) {
    CKPT_TRY(const std::string doubt, check_fragments({task.stored, order.begins, cut, ranks}));
    if (!doubt.empty()) task.builder.find(Severity::warning, doubt);
  }
  const std::uint32_t master = add_master_array(task.builder, ranks);
  const GroupState& first = ranks[0];
  std::vector<std::uint32_t> slots;
  for (std::size_t s = 0; s < first.slots.size(); ++s)
    slots.push_back(whole[s] ? 0 : add_slot_array(task.builder, ranks, s));
  for (std::size_t i = 0; i < task.named.size(); ++i) {
    FlatParameter& parameter = out.emplace_back(FlatParameter{.shape = &task.named[i]});
    const auto stretch = [&](std::uint32_t array) {
      return std::vector<PartitionIndex::Source>{PartitionIndex::InGroup{array, cut, order.begins[i]}};
    };
    parameter.slots.push_back({std::string(kMasterSlot), first.master.dtype, stretch(master)});
    for (std::size_t s = 0; s < slots.size(); ++s) {
      const auto& [slot, run] = first.slots[s];
      parameter.slots.push_back({slot, run.dtype, whole[s] ? parameters.copies(ranks, s, i) : stretch(slots[s])});
    }
  }
  return {};
}

}  // namespace

GroupRanks::GroupRanks(const std::vector<OptimStates>& files, std::size_t group) : group_(group) {
  for (const OptimStates& file : files) files_.push_back(&file);
}

GroupRanks::GroupRanks(const std::vector<OptimStates>& files, std::size_t group, const std::vector<std::uint64_t>& only)
    : group_(group) {
  for (const std::uint64_t rank : only) files_.push_back(&files[static_cast<std::size_t>(rank)]);
}

Error wrong_slot_count(const std::string& path, const std::string& what, std::string_view slot) {
  // For a slot with one value per element a wrong count is damage; any other slot has a form of its own.
  if (is_elementwise(slot)) return {.code = Errc::corrupt, .message = path + ": " + what, .file = path};
  return {.code = Errc::unsupported,
          .message = path + ": " + what + ": optimizer state of this form is not supported",
          .file = path};
}

/// "3.5", or "none".
std::string step_text(const Value* step) {
  if (step == nullptr) return "none";
  if (const auto* whole = std::get_if<std::int64_t>(&step->v)) return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&step->v)) return fmt::format("{}", *real);
  return "not a number";
}

Result<> check_same_slots(const GroupRanks& ranks) {
  const GroupState& first = ranks[0];
  const auto shared_step = [](const GroupState& state) -> const Value* {
    for (const auto& [key, value] : state.values) {
      if (key == "step") return &value;
    }
    return nullptr;
  };
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const GroupState& state = ranks[r];
    const bool same =
        std::equal(state.slots.begin(), state.slots.end(), first.slots.begin(), first.slots.end(),
                   [](const auto& a, const auto& b) { return a.first == b.first && a.second.dtype == b.second.dtype; });
    if (!same || state.master.dtype != first.master.dtype) {
      return corrupt(ranks.file(r).path,
                     group_text(ranks.group()) + ": other optimizer state than in " + ranks.file(0).path);
    }
    const Value* mine = shared_step(state);
    const Value* theirs = shared_step(first);
    if ((mine == nullptr) != (theirs == nullptr) || (mine != nullptr && !same_value(*mine, *theirs))) {
      return corrupt(ranks.file(r).path, group_text(ranks.group()) + ": another optimizer step than in " +
                                             ranks.file(0).path + ": " + step_text(mine) + ", there " +
                                             step_text(theirs) + ": the files are of different saves");
    }
  }
  return {};
}

std::uint32_t add_master_array(MapBuilder& builder, const GroupRanks& ranks) {
  std::vector<Run> runs;
  for (std::size_t r = 0; r < ranks.size(); ++r) runs.push_back(ranks[r].master);
  return builder.index().add_array(std::move(runs));
}

std::uint32_t add_slot_array(MapBuilder& builder, const GroupRanks& ranks, std::size_t slot) {
  std::vector<Run> runs;
  for (std::size_t r = 0; r < ranks.size(); ++r) runs.push_back(ranks[r].slots[slot].second);
  return builder.index().add_array(std::move(runs));
}

Result<std::vector<FlatParameter>> lay_out_flat_groups(MapBuilder& builder, const ModelStates& model,
                                                       const std::vector<OptimStates>& ranks) {
  std::vector<FlatParameter> out;
  const std::vector<GroupShapes>& groups = *model.param_shapes;
  Weights weights;
  for (const NamedTensor& entry : model.module) weights.emplace(entry.name, &entry.tensor);
  for (const OptimStates& rank : ranks) {
    if (rank.groups.size() == groups.size()) continue;
    return corrupt(rank.path, std::to_string(rank.groups.size()) + " parameter groups, but param_shapes has " +
                                  std::to_string(groups.size()));
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto experts = model.expert_groups.find(g);
    if (experts == model.expert_groups.end()) {
      CKPT_CHECK(lay_out_group({builder, model, weights, groups[g], groups[g], GroupRanks(ranks, g)}, out));
      continue;
    }
    const auto& [stored, rank_count] = experts->second;
    for (std::uint64_t e = 0; e < rank_count; ++e) {
      const auto named = std::span(groups[g]).subspan(static_cast<std::size_t>(e) * stored.size(), stored.size());
      const auto sharing = ranks_of_experts(e, rank_count, ranks.size(), model.facts.data_before_experts);
      CKPT_CHECK(lay_out_group({builder, model, weights, stored, named, GroupRanks(ranks, g, sharing)}, out));
    }
  }
  return out;
}

Result<> place_flat_groups(MapBuilder& builder, const ModelStates& model, const std::vector<OptimStates>& ranks) {
  CKPT_TRY(const auto parameters, lay_out_flat_groups(builder, model, ranks));
  for (const FlatParameter& parameter : parameters) {
    const auto& [name, shape, elements] = *parameter.shape;
    for (const FlatParameter::Slot& slot : parameter.slots) {
      Tensor tensor = slot_tensor(name, slot.name, slot.dtype, shape);
      if (const auto* stretch = std::get_if<PartitionIndex::InGroup>(&slot.copies.front())) {
        CKPT_CHECK(builder.add_in_group(std::move(tensor), *stretch));
      } else {
        CKPT_CHECK(builder.add_pieces(std::move(tensor), {{.box = Box::whole(shape), .copies = slot.copies}}));
      }
    }
  }
  return {};
}

}  // namespace ckpt::deepspeed
