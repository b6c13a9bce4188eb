#include "convert/deepspeed/stages/partitioned_params.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "convert/deepspeed/files/version.hpp"
#include "convert/deepspeed/stages/flat_groups.hpp"
#include "convert/deepspeed/stages/weights.hpp"
#include "format/checked.hpp"
#include "format/model/cut.hpp"

namespace ckpt::deepspeed {
namespace {

std::string partition_group_text(std::size_t group) {
  return "sub-group " + std::to_string(group);
}

auto corrupt_partition(const std::string& file, const std::string& what) {
  return fail({.code = Errc::corrupt, .message = file + ": " + what, .file = file});
}

/// A trained parameter: where its part begins in every rank's sub-group.
struct Trained {
  std::size_t group = 0;
  cut::Partition cut{};
  std::uint64_t begin = 0;
};
using TrainedParams = std::unordered_map<std::string, Trained>;

Result<TrainedParams> lay_out(const std::vector<GroupShapes>& groups, const std::vector<OptimStates>& ranks) {
  TrainedParams out;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::uint64_t begin = 0;
    for (const NamedShape& shape : groups[g]) {
      CKPT_TRY(const cut::Partition cut, cut::partition({.length = shape.elements, .part_count = ranks.size()}));
      out.emplace(shape.name, Trained{g, cut, begin});
      CKPT_TRY(begin, checked_add(begin, cut.part_elements));
    }
    for (const OptimStates& rank : ranks) {
      const GroupState& state = rank.groups[g];
      const auto what = [&](const std::string& thing, std::uint64_t elements) {
        return partition_group_text(g) + ": " + thing + " has " + std::to_string(elements) +
               " elements, but the parts of its " + std::to_string(groups[g].size()) + " parameters take " +
               std::to_string(begin);
      };
      if (state.master.elements != begin)
        return corrupt_partition(rank.path, what("the fp32 master", state.master.elements));
      for (const auto& [slot, run] : state.slots) {
        if (run.elements != begin) return fail(wrong_slot_count(rank.path, what(slot, run.elements), slot));
      }
    }
  }
  return out;
}

}  // namespace

Result<FrozenParts> frozen_parts(const std::string& path, const std::vector<NamedShape>& frozen,
                                 const std::vector<NamedTensor>& fragments, std::uint64_t part_count) {
  std::unordered_map<std::string, const FileTensor*> found;
  for (const NamedTensor& fragment : fragments) found.emplace(fragment.name, &fragment.tensor);
  FrozenParts parts;
  for (const NamedShape& shape : frozen) {
    const auto at = found.find(shape.name);
    if (at == found.end()) return corrupt_partition(path, "frozen_param_fragments: " + shape.name + ": missing");
    const FileTensor& tensor = *at->second;
    if (tensor.type.dtype == Dtype::i8 || tensor.type.dtype == Dtype::u8) {
      return fail({.code = Errc::unsupported,
                   .message = path + ": frozen_param_fragments: " + shape.name +
                              ": quantised frozen weights (their scales are not stored) cannot be read",
                   .file = path,
                   .tensor = shape.name});
    }
    CKPT_TRY(const cut::Partition cut, cut::partition({.length = shape.elements, .part_count = part_count}));
    if (tensor.type.shape.size() != 1 || !tensor.where.strides.empty() || tensor.elements() != cut.part_elements) {
      return fail(
          with_tensor({.code = Errc::corrupt,
                       .message = path + ": frozen_param_fragments: " + shape.name + ": " +
                                  std::to_string(tensor.elements()) + " elements, but each of " +
                                  std::to_string(part_count) + " ranks holds " + std::to_string(cut.part_elements),
                       .file = path},
                      shape.name));
    }
    parts.push_back({tensor.where.offset, tensor.elements(), tensor.where.file, tensor.where.dtype,
                     tensor.where.big_endian, tensor.where.crc});
  }
  return parts;
}

Result<PartitionedModel> lay_out_partitioned(MapBuilder& builder, const ModelStates& model,
                                             const std::vector<OptimStates>& ranks,
                                             const std::vector<FrozenParts>& frozen) {
  PartitionedModel out;
  const std::vector<GroupShapes>& groups = *model.param_shapes;
  for (const OptimStates& rank : ranks) {
    if (rank.groups.size() == groups.size()) continue;
    return corrupt_partition(rank.path, std::to_string(rank.groups.size()) + " sub-groups, but param_shapes has " +
                                            std::to_string(groups.size()));
  }
  CKPT_TRY(const TrainedParams trained, lay_out(groups, ranks));
  std::vector<std::uint32_t> masters;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    CKPT_CHECK(check_same_slots(GroupRanks(ranks, g)));
    masters.push_back(add_master_array(builder, GroupRanks(ranks, g)));
  }
  std::unordered_map<std::string, std::size_t> frozen_at;
  for (std::size_t i = 0; i < model.frozen.size(); ++i) frozen_at.emplace(model.frozen[i].name, i);
  std::unordered_map<std::string, const Shape*> shapes;
  for (const GroupShapes& group : groups) {
    for (const NamedShape& shape : group) shapes.emplace(shape.name, &shape.shape);
  }

  // Weights and buffers, in the order of the module.
  std::unordered_set<std::string> real = trained_names(groups);
  for (const NamedShape& shape : model.frozen) real.insert(shape.name);
  std::unordered_set<std::string> known = real;
  for (const NamedTensor& entry : model.module) known.insert(entry.name);
  const std::vector<std::size_t> holder = tied_to(model, real, true);
  for (std::size_t i = 0; i < model.module.size(); ++i) {
    const auto& [name, tensor] = model.module[i];
    const Dtype dtype = tensor.type.dtype;
    if (holder[i] != i) {
      out.aliases.push_back({name, model.module[holder[i]].name});
    } else if (const auto at = trained.find(name); at != trained.end()) {
      out.weights.push_back({{.name = name, .dtype = dtype, .shape = *shapes.at(name)},
                             PartitionIndex::Partitioned{masters[at->second.group], at->second.cut, at->second.begin},
                             true});
    } else if (const auto part = frozen_at.find(name); part != frozen_at.end()) {
      std::vector<Run> runs;
      for (const FrozenParts& rank : frozen) {
        runs.push_back(rank[part->second]);
        if (runs.back().dtype == dtype) continue;
        return fail(with_tensor(
            {.code = Errc::unsupported, .message = name + ": its frozen parts have another dtype than the module"},
            name));
      }
      const NamedShape& shape = model.frozen[part->second];
      CKPT_TRY(const cut::Partition cut, cut::partition({.length = shape.elements, .part_count = frozen.size()}));
      out.weights.push_back({{.name = name, .dtype = dtype, .shape = shape.shape},
                             PartitionIndex::Partitioned{builder.index().add_array(std::move(runs)), cut, 0}});
    } else if (const bool buffer = model.buffer_names.count(name) != 0; buffer || tensor.elements() > 0) {
      out.weights.push_back({{.name = name,
                              .dtype = dtype,
                              .shape = tensor.type.shape,
                              .role = buffer ? Role::buffer : Role::param,
                              .true_dtype = tensor.type.true_dtype},
                             tensor.where});
    } else if (const auto tie = std::ranges::find(model.shared, name, &std::pair<std::string, std::string>::first);
               tie != model.shared.end() && !known.count(tie->second)) {
      // exclude_frozen_parameters removes one name of a tied weight only.
      builder.find(Severity::note, name + ": left out: tied to " + tie->second + ", which was not saved", model.path,
                   name);
    } else if (is_before(model.facts.version, 9)) {
      return fail(
          with_tensor({.code = Errc::incomplete,
                       .message = fmt::format("{}: its values are in no file: frozen, and DeepSpeed {} stores no "
                                              "frozen parameters of stage 3",
                                              name, model.facts.version),
                       .file = model.path},
                      name));
    } else {
      return fail(with_tensor(
          {.code = Errc::uncovered, .message = name + ": in the module but in no rank's partition", .file = model.path},
          name));
    }
  }
  for (const auto& [name, target] : model.shared) {
    if (real.count(target)) out.aliases.push_back({name, target});
  }

  for (std::size_t g = 0; g < groups.size(); ++g) {
    const GroupState& first = ranks[0].groups[g];
    std::vector<std::uint32_t> slots;
    for (std::size_t s = 0; s < first.slots.size(); ++s) {
      slots.push_back(add_slot_array(builder, GroupRanks(ranks, g), s));
    }
    for (const NamedShape& shape : groups[g]) {
      const Trained& place = trained.at(shape.name);
      out.slots.push_back({slot_tensor(shape.name, kMasterSlot, first.master.dtype, shape.shape),
                           PartitionIndex::Partitioned{masters[g], place.cut, place.begin}});
      for (std::size_t s = 0; s < slots.size(); ++s) {
        const auto& [slot, run] = first.slots[s];
        out.slots.push_back({slot_tensor(shape.name, slot, run.dtype, shape.shape),
                             PartitionIndex::Partitioned{slots[s], place.cut, place.begin}});
      }
    }
  }
  return out;
}

void note_cast_weights(MapBuilder& builder) {
  builder.find(Severity::note, "ZeRO stage 3 stores no 16-bit weights: they are cast from the fp32 masters");
}

Result<> place_partitioned(MapBuilder& builder, const ModelStates& model, const std::vector<OptimStates>& ranks,
                           const std::vector<FrozenParts>& frozen) {
  CKPT_TRY(PartitionedModel laid_out, lay_out_partitioned(builder, model, ranks, frozen));
  const auto place = [&](PartitionedTensor& entry) -> Result<> {
    if (auto* where = std::get_if<Locator>(&entry.place)) {
      return builder.add_whole(std::move(entry.tensor), std::move(*where));
    }
    return builder.add_partitioned(std::move(entry.tensor), std::get<PartitionIndex::Partitioned>(entry.place));
  };
  std::unordered_map<std::string, std::size_t> cast;  // by name
  for (PartitionedTensor& weight : laid_out.weights) {
    if (weight.is_master_cast) cast.emplace(weight.tensor.name, builder.tensor_count());
    CKPT_CHECK(place(weight));
  }
  for (Alias& alias : laid_out.aliases) builder.add_alias(std::move(alias.name), std::move(alias.target));
  for (PartitionedTensor& slot : laid_out.slots) {
    const auto weight = slot.tensor.slot == kMasterSlot ? cast.find(slot.tensor.parameter) : cast.end();
    CKPT_CHECK(place(slot));
    if (weight != cast.end()) builder.add_derived(weight->second);
  }
  note_cast_weights(builder);
  return {};
}

}  // namespace ckpt::deepspeed
