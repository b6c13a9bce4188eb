#include "convert/deepspeed/stages/whole_optimizer.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <utility>

#include "convert/deepspeed/files/files.hpp"
#include "convert/deepspeed/stages/experts.hpp"
#include "convert/deepspeed/stages/weights.hpp"
#include "format/model/cast.hpp"
#include "format/model/match_parameters.hpp"
#include "format/model/object_tree.hpp"
#include "format/text/parse_number.hpp"
#include "format/torch/torch_object.hpp"

namespace ckpt::deepspeed {

using pickle::kNone;
using pickle::NodeId;

namespace {

/// The contents of one index of the torch state dict.
struct Member {
  std::vector<NamedTensor> tensors{};
  std::vector<std::pair<std::string, NodeId>> others{};
};

struct Optimizer {
  std::vector<HyperGroup> groups{};
  std::unordered_map<std::uint64_t, Member> members{};
  /// fp32_groups: the masters of each group, in order; fp32_groups_flat: one per group
  std::vector<std::vector<FileTensor>> masters{};
  bool flat = false;
};

Result<std::vector<FileTensor>> tensor_list(const StateFile& file, NodeId node, const std::string& what) {
  CKPT_TRY(const auto nodes, file.items(node, what));
  std::vector<FileTensor> out;
  for (const NodeId item : nodes) {
    CKPT_TRY(auto tensor, file.tensor(item, what));
    if (!tensor) return fail(file.error(Errc::corrupt, what + ": an item is not a tensor"));
    out.push_back(*std::move(tensor));
  }
  return out;
}

Result<> read_members(const StateFile& file, NodeId state, Optimizer& out) {
  CKPT_TRY(const auto entries, read_state_entries(file, state));
  for (const auto& [index, node] : entries) {
    const std::string what = "optimizer state: " + std::to_string(index);
    CKPT_TRY(const auto values, file.named_entries(node, what));
    Member& member = out.members[index];
    for (const auto& [key, value] : values) {
      CKPT_TRY(auto tensor, file.tensor(value, what + ": " + key));
      if (tensor) {
        member.tensors.push_back({key, *std::move(tensor)});
      } else {
        member.others.emplace_back(key, value);
      }
    }
  }
  return {};
}

/// The optimizer, or nothing where its form is not one of those known.
Result<std::optional<Optimizer>> read_optimizer(const StateFile& file, NodeId node, ObjectReader& objects) {
  Optimizer out;
  const NodeId inner = file.find(node, "optimizer_state_dict");
  const NodeId dict = inner == kNone ? node : inner;
  const NodeId hyper = file.find(dict, "param_groups");
  if (hyper == kNone || file.find(dict, "state") == kNone) return std::optional<Optimizer>{};
  CKPT_TRY(out.groups, read_hyper_groups(file, hyper, objects));
  CKPT_CHECK(read_members(file, file.find(dict, "state"), out));
  if (const NodeId lists = file.find(node, "fp32_groups"); lists != kNone) {
    CKPT_TRY(const auto nodes, file.items(lists, "fp32_groups"));
    for (const NodeId list : nodes) {
      CKPT_TRY(auto tensors, tensor_list(file, list, "fp32_groups"));
      out.masters.push_back(std::move(tensors));
    }
  } else if (const NodeId flat = file.find(node, "fp32_groups_flat"); flat != kNone) {
    CKPT_TRY(auto tensors, tensor_list(file, flat, "fp32_groups_flat"));
    for (FileTensor& tensor : tensors) out.masters.push_back({std::move(tensor)});
    out.flat = true;
  }
  const bool fits = out.masters.empty() || out.masters.size() == out.groups.size();
  bool same = fits;
  for (std::size_t g = 0; fits && g < out.masters.size(); ++g) {
    same = same && out.masters[g].size() == out.groups[g].members.size();
  }
  std::uint64_t count = 0;
  for (const HyperGroup& group : out.groups) count += group.members.size();
  for (const HyperGroup& group : out.groups) {
    for (const std::uint64_t member : group.members) same = same && member < count;
  }
  if (!same) return fail(file.error(Errc::corrupt, "optimizer: its parameter groups contradict its members"));
  return std::optional(std::move(out));
}

std::optional<Shape> shape_of(const Member& member) {
  std::vector<std::pair<std::string_view, Shape>> state;
  for (const auto& [slot, tensor] : member.tensors) state.emplace_back(slot, tensor.type.shape);
  return shape_of_state(state);
}

std::vector<UnnamedGroup> unnamed_groups(const Optimizer& optimizer) {
  std::vector<UnnamedGroup> out;
  for (std::size_t g = 0; g < optimizer.groups.size(); ++g) {
    UnnamedGroup group;
    if (optimizer.flat) {
      group.flat_elements = optimizer.masters[g][0].elements();
    } else {
      for (std::size_t i = 0; i < optimizer.groups[g].members.size(); ++i) {
        const auto member = optimizer.members.find(optimizer.groups[g].members[i]);
        if (!optimizer.masters.empty()) {
          group.shapes.emplace_back(optimizer.masters[g][i].type.shape);
        } else {
          group.shapes.push_back(member == optimizer.members.end() ? std::nullopt : shape_of(member->second));
        }
      }
    }
    out.push_back(std::move(group));
  }
  return out;
}

/// Compares up to 64 elements at either end of a weight with a master that may be its own, cast to the weight's dtype.
/// The weight may be in another file of the map: that of its pipeline layer.
Result<bool> rounds_to(const Map& map, const StateFile& file, const FileTensor& weight, const FileTensor& master,
                       std::uint64_t master_begin) {
  constexpr std::uint64_t kElements = 64;
  const bool comparable = weight.where.strides.empty() && master.where.strides.empty() && !weight.where.big_endian &&
                          !master.where.big_endian && is_castable(weight.type.dtype) && is_castable(master.type.dtype);
  if (!comparable) return false;
  const std::uint64_t elements = weight.elements();
  const std::uint64_t count = std::min(kElements, elements);
  for (const std::uint64_t at : {std::uint64_t{0}, elements - count}) {
    const auto read = [&](const FileTensor& tensor, std::uint64_t begin) {
      const std::uint64_t offset = tensor.where.offset + begin * unit_bytes(tensor.type.dtype);
      const std::uint64_t bytes = count * unit_bytes(tensor.type.dtype);
      return tensor.where.file == file.index() ? file.bytes(offset, bytes)
                                               : file.bytes_of(map.files[tensor.where.file].path, offset, bytes);
    };
    CKPT_TRY(const auto stored, read(weight, at));
    CKPT_TRY(const auto full, read(master, master_begin + at));
    std::vector<std::byte> rounded(stored.size());
    CastCounts counts;
    cast(master.type.dtype, full.data(), weight.type.dtype, rounded.data(), static_cast<std::size_t>(count), counts);
    if (rounded != stored) return false;
  }
  return true;
}

/// Gives the slots of one member (or of a flat group's stretch) their names.
class Placer {
 public:
  Placer(const AddSlot& add, ObjectReader& objects, std::vector<NamedObject>& out)
      : add_(add), objects_(objects), out_(out) {}

  /// `name`: the parameter's, or the text of an index; `parameter`: empty in the latter case.
  Result<> member(const std::string& name, const std::string& parameter, const Member& member) {
    for (const auto& [slot, tensor] : member.tensors) CKPT_CHECK(whole(name, parameter, slot, tensor));
    for (const auto& [key, node] : member.others) {
      const Path path{"optimizer", "state", name, key};
      CKPT_TRY(Value value, objects_.read(node, path));
      out_.push_back({dotted(path), splits_to(dotted(path), path) ? Path{} : path, std::move(value)});
    }
    return {};
  }

  Result<> whole(const std::string& name, const std::string& parameter, std::string_view slot,
                 const FileTensor& tensor) {
    Tensor out = slot_tensor(name, slot, tensor.type.dtype, tensor.type.shape);
    out.parameter = parameter;
    out.true_dtype = tensor.type.true_dtype;
    return add_(std::move(out), tensor.where);
  }

  /// Elements [begin, ...) of a flat tensor, as the parameter's.
  Result<> stretch(const std::string& parameter, const Shape& shape, std::string_view slot, const FileTensor& flat,
                   std::uint64_t begin) {
    Locator where = flat.where;
    where.offset += begin * unit_bytes(flat.type.dtype);
    return add_(slot_tensor(parameter, slot, flat.type.dtype, shape), std::move(where));
  }

 private:
  const AddSlot& add_;
  ObjectReader& objects_;
  std::vector<NamedObject>& out_;
};

/// Keys of the optimizer that are read by name; every other key is an object.
Result<> keep_objects(const StateFile& file, NodeId dict, ObjectReader& objects, std::vector<NamedObject>& out) {
  constexpr std::array kKnown{std::string_view("optimizer_state_dict"), std::string_view("fp32_groups"),
                              std::string_view("fp32_groups_flat"), std::string_view("state"),
                              std::string_view("param_groups")};
  CKPT_TRY(const auto entries, file.named_entries(dict, "optimizer"));
  for (const auto& [key, node] : entries) {
    if (std::find(kKnown.begin(), kKnown.end(), key) != kKnown.end()) continue;
    const Path path{"optimizer", key};
    CKPT_TRY(Value value, objects.read(node, path));
    out.push_back({dotted(path), splits_to(dotted(path), path) ? Path{} : path, std::move(value)});
  }
  return {};
}

/// Groups that hold experts only say so.
/// source   deepspeed/moe/utils.py: split_params_into_different_moe_groups_for_optimizer
bool is_of_experts(const HyperGroup& group) {
  const Value* moe = member(&group.values, "moe");
  const auto* flag = moe != nullptr ? std::get_if<bool>(&moe->v) : nullptr;
  return flag != nullptr && *flag;
}

/// The expert-parallel degree in the name of a group of experts; 1 if it has none.
std::uint64_t expert_ranks_of(const HyperGroup& group) {
  constexpr std::string_view kPrefix = "ep_size_";
  const Value* name = is_of_experts(group) ? member(&group.values, "name") : nullptr;
  const auto* text = name != nullptr ? std::get_if<std::string>(&name->v) : nullptr;
  if (text == nullptr || !text->starts_with(kPrefix)) return 1;
  std::string_view rest = std::string_view(*text).substr(kPrefix.size());
  const auto ranks = take_number<std::uint64_t>(rest);
  return ranks && rest.empty() ? *ranks : 1;
}

/// Which parameters and groups are matched with each other.
enum class Among : std::uint8_t { all, experts, others };

bool is_among(Among among, bool of_experts) {
  return among == Among::all || (among == Among::experts) == of_experts;
}

/// Parameters without elements: torch's optimizers have them, DeepSpeed's own leave them out.
enum class Empty : std::uint8_t { no_member, may_be_member };

/// Fills in the members of those groups. False if they are unknown.
Result<bool> match_among(Among among, Empty empty, const Map& map, const ModelStates& model, const StateFile& file,
                         const Optimizer& optimizer, Assignment& out) {
  const std::vector<std::size_t> holder = tied_to(model, {}, false);
  std::vector<std::size_t> entries;
  std::vector<Shape> candidates;
  for (std::size_t i = 0; i < model.module.size(); ++i) {
    const auto& [name, tensor] = model.module[i];
    if (holder[i] != i || model.buffer_names.count(name)) continue;
    if (empty == Empty::no_member && tensor.elements() == 0) continue;
    if (!is_among(among, expert_name(name).has_value())) continue;
    entries.push_back(i);
    candidates.push_back(tensor.type.shape);
  }
  const std::vector<UnnamedGroup> all = unnamed_groups(optimizer);
  std::vector<UnnamedGroup> groups;
  std::vector<std::size_t> numbers;
  for (std::size_t g = 0; g < all.size(); ++g) {
    if (!is_among(among, is_of_experts(optimizer.groups[g]))) continue;
    groups.push_back(all[g]);
    numbers.push_back(g);
  }
  Agrees agrees;
  if (!optimizer.masters.empty()) {
    agrees = [&](std::size_t candidate, std::size_t group, std::uint64_t position) {
      const auto& masters = optimizer.masters[numbers[group]];
      const FileTensor& weight = model.module[entries[candidate]].tensor;
      return optimizer.flat ? rounds_to(map, file, weight, masters[0], position)
                            : rounds_to(map, file, weight, masters[static_cast<std::size_t>(position)], 0);
    };
  }
  CKPT_TRY(const auto found, match_parameters(candidates, groups, agrees));
  if (!found) return false;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::size_t member : (*found)[g]) out[numbers[g]].push_back(entries[member]);
  }
  return true;
}

/// The parameters of every group, by index into the module; nothing if they are unknown.
Result<std::optional<Assignment>> find_names(const Map& map, const ModelStates& model, const StateFile& file,
                                             const Optimizer& optimizer) {
  const bool apart = std::any_of(optimizer.groups.begin(), optimizer.groups.end(), is_of_experts);
  Assignment out(optimizer.groups.size());
  for (const Among among : apart ? std::vector{Among::experts, Among::others} : std::vector{Among::all}) {
    CKPT_TRY(bool known, match_among(among, Empty::no_member, map, model, file, optimizer, out));
    if (!known && !optimizer.flat) {
      CKPT_TRY(known, match_among(among, Empty::may_be_member, map, model, file, optimizer, out));
    }
    if (!known) return std::optional<Assignment>{};
  }
  return std::optional(std::move(out));
}

/// A flat group: every slot is one tensor for all its members, laid end to end without alignment.
Result<> place_flat(Placer& placer, const ModelStates& model, const StateFile& file, const Optimizer& optimizer,
                    std::size_t group, const std::vector<std::size_t>& members) {
  const FileTensor& master = optimizer.masters[group][0];
  std::vector<std::pair<std::string_view, const FileTensor*>> flats{{kMasterSlot, &master}};
  if (const auto state = optimizer.members.find(optimizer.groups[group].members[0]); state != optimizer.members.end()) {
    for (const auto& [slot, tensor] : state->second.tensors) {
      if (!tensor.type.shape.empty()) flats.emplace_back(slot, &tensor);
    }
  }
  for (const auto& [slot, tensor] : flats) {
    const std::string what = "optimizer: group " + std::to_string(group) + ": " + std::string(slot);
    CKPT_TRY(const Run run, as_run(file, *tensor, what));
    if (run.elements != master.elements()) {
      return fail(file.error(Errc::corrupt, what + " has " + std::to_string(run.elements) + " elements, the master " +
                                                std::to_string(master.elements())));
    }
  }
  std::uint64_t begin = 0;
  for (const std::size_t member : members) {
    const auto& [name, weight] = model.module[member];
    for (const auto& [slot, tensor] : flats) {
      CKPT_CHECK(placer.stretch(name, weight.type.shape, slot, *tensor, begin));
    }
    begin += weight.elements();
  }
  return {};
}

/// The values that the members of a flat group share.
Result<> read_flat_values(const StateFile& file, const Optimizer& optimizer, OptimStates& states) {
  for (std::size_t g = 0; g < optimizer.groups.size(); ++g) {
    GroupState& group = states.groups.emplace_back();
    const auto state = optimizer.members.find(optimizer.groups[g].members[0]);
    if (state == optimizer.members.end()) continue;
    for (const auto& [slot, tensor] : state->second.tensors) {
      if (!tensor.type.shape.empty()) continue;
      CKPT_TRY(auto value, file.scalar(tensor));
      if (value) group.values.emplace_back(slot, *std::move(value));
    }
    for (const auto& [key, node] : state->second.others) {
      if (const auto number = torch::as_integer(file.graph(), node)) group.values.emplace_back(key, Value{*number});
    }
  }
  return {};
}

/// Masters of a plain fp32 run: the weights themselves.
Result<> place_own_master(Placer& placer, const NamedTensor& weight) {
  if (weight.tensor.type.dtype != Dtype::f32) return {};
  return placer.whole(weight.name, weight.name, kMasterSlot, weight.tensor);
}

}  // namespace

Result<> SlotCopies::add(Tensor tensor, Locator where) {
  const auto [at, added] = slot_at_.emplace(tensor.name, slots_.size());
  if (added) {
    slots_.push_back({std::move(tensor), {std::move(where)}});
    return {};
  }
  Copies& copies = slots_[at->second];
  if (copies.tensor.shape != tensor.shape || copies.tensor.dtype != tensor.dtype ||
      copies.tensor.true_dtype != tensor.true_dtype) {
    return fail(with_tensor({.code = Errc::corrupt, .message = tensor.name + ": its shape differs between ranks"},
                            tensor.name));
  }
  const bool known = std::any_of(copies.places.begin(), copies.places.end(), [&](const Locator& place) {
    return place.file == where.file && place.offset == where.offset;
  });
  if (!known) copies.places.push_back(std::move(where));
  return {};
}

Result<> SlotCopies::place(MapBuilder& builder) {
  for (Copies& slot : slots_) {
    PartitionIndex::Piece piece{.box = Box::whole(slot.tensor.shape)};
    for (Locator& place : slot.places) piece.copies.emplace_back(std::move(place));
    CKPT_CHECK(builder.add_pieces(std::move(slot.tensor), {std::move(piece)}));
  }
  return {};
}

Result<std::vector<UnnamedGroup>> read_unnamed_groups(const StateFile& file) {
  const NodeId node = file.find(file.root(), "optimizer");
  if (node == kNone) return std::vector<UnnamedGroup>{};
  ObjectReader objects(file);
  CKPT_TRY(const auto known, read_optimizer(file, node, objects));
  return known ? unnamed_groups(*known) : std::vector<UnnamedGroup>{};
}

Result<> check_expert_ranks(const StateFile& file, std::uint64_t model_rank, std::uint64_t expert_ranks) {
  const NodeId node = file.find(file.root(), "optimizer");
  if (node == kNone) return {};
  ObjectReader objects(file);
  CKPT_TRY(const auto known, read_optimizer(file, node, objects));
  if (!known) return {};
  std::uint64_t most = 1;
  for (const HyperGroup& group : known->groups) most = std::max(most, expert_ranks_of(group));
  if (most <= expert_ranks) return {};
  const std::string path =
      file.path().substr(0, file.path().rfind('/') + 1) + expert_optim_name(expert_ranks, model_rank);
  return fail({.code = Errc::incomplete,
               .message = path + ": the file is missing: " + file.path() + " is of " + std::to_string(most) +
                          " expert-parallel ranks",
               .file = path,
               .hint = "each rank writes its own file: copy the missing ones from the nodes that wrote them"});
}

Result<> place_whole_optimizer(MapBuilder& builder, const ModelStates& model, const StateFile& file,
                               ObjectReader& objects, std::vector<NamedObject>& out, const AddSlot& add,
                               Unnamed unnamed) {
  const NodeId node = file.find(file.root(), "optimizer");
  if (node == kNone) return {};
  CKPT_TRY(const auto known, read_optimizer(file, node, objects));
  if (!known) {
    CKPT_TRY(Value value, objects.read(node, {"optimizer"}));
    out.push_back({"optimizer", {}, std::move(value)});
    return {};
  }
  const Optimizer& optimizer = *known;
  CKPT_CHECK(keep_objects(file, node, objects, out));
  if (const NodeId inner = file.find(node, "optimizer_state_dict"); inner != kNone) {
    CKPT_CHECK(keep_objects(file, inner, objects, out));
  }
  CKPT_TRY(const auto names, find_names(builder.map(), model, file, optimizer));
  if (!names && unnamed == Unnamed::refuse) {
    return fail(with_hint(file.error(Errc::unsupported,
                                     "the optimizer stores no names, its parameters cannot be distinguished, and other "
                                     "ranks have other parameters"),
                          "save it with ZeRO stage 1, which stores names"));
  }
  if (!names) {
    builder.find(
        Severity::warning,
        "the optimizer stores no names and its parameters cannot be distinguished: its state keeps their index");
  }
  Placer placer(add, objects, out);
  OptimStates states{.path = file.path(), .hyper_groups = optimizer.groups};
  GroupNames member_names;
  const auto name_member = [&](std::uint64_t index, std::vector<ValuePtr> member) {
    if (member_names.size() <= index) member_names.resize(static_cast<std::size_t>(index) + 1);
    member_names[static_cast<std::size_t>(index)] = std::move(member);
  };
  for (std::size_t g = 0; g < optimizer.groups.size(); ++g) {
    const auto& members = optimizer.groups[g].members;
    if (names && optimizer.flat) {
      CKPT_CHECK(place_flat(placer, model, file, optimizer, g, (*names)[g]));
      std::vector<ValuePtr> group;
      for (const std::size_t member : (*names)[g]) group.push_back(text_value(model.module[member].name));
      name_member(members[0], std::move(group));
      continue;
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      const NamedTensor* weight = names ? &model.module[(*names)[g][i]] : nullptr;
      const std::string name = weight != nullptr ? weight->name : std::to_string(members[i]);
      const std::string parameter = weight != nullptr ? weight->name : "";
      if (!optimizer.masters.empty()) {
        CKPT_CHECK(placer.whole(name, parameter, kMasterSlot, optimizer.masters[g][i]));
      } else if (weight != nullptr) {
        CKPT_CHECK(place_own_master(placer, *weight));
      }
      const auto state = optimizer.members.find(members[i]);
      if (state != optimizer.members.end()) CKPT_CHECK(placer.member(name, parameter, state->second));
      if (weight != nullptr) name_member(members[i], {text_value(name)});
    }
  }
  if (names && optimizer.flat) CKPT_CHECK(read_flat_values(file, optimizer, states));
  CKPT_TRY(auto groups, group_objects(states, names ? &member_names : nullptr));
  for (NamedObject& object : groups) out.push_back(std::move(object));
  return {};
}

}  // namespace ckpt::deepspeed
