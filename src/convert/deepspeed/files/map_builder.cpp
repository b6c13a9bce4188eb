#include "convert/deepspeed/files/map_builder.hpp"

#include <algorithm>
#include <utility>

#include "format/model/cut.hpp"
#include "format/model/slot_name.hpp"

namespace ckpt::deepspeed {
namespace {

/// The name with bytes that are not UTF-8 as %XX; the same text where it is UTF-8.
std::string utf8_name(const std::string& name) {
  std::string escaped = dotted_escaped(split_at_dots(name));
  std::string plain;
  for (const char c : name) plain += c == '%' ? std::string("%25") : std::string(1, c);
  return escaped == plain ? name : escaped;
}

}  // namespace

Result<> MapBuilder::take_name(Tensor& tensor) {
  std::string name = utf8_name(tensor.name);
  if (name != tensor.name) {
    tensor.path = {tensor.name};
    tensor.parameter = utf8_name(tensor.parameter);
    find(Severity::note, name + ": replaces a name that is not UTF-8", {}, name);
    tensor.name = std::move(name);
  }
  if (!names_.insert(tensor.name).second) {
    return fail(
        with_tensor({.code = Errc::unsupported, .message = tensor.name + ": two tensors of this name"}, tensor.name));
  }
  return {};
}

Result<> MapBuilder::add_whole(Tensor tensor, Locator where) {
  CKPT_CHECK(take_name(tensor));
  index_->add_whole(tensor.shape, std::move(where));
  map_.tensors.push_back(std::move(tensor));
  return {};
}

Result<> MapBuilder::add_in_group(Tensor tensor, const PartitionIndex::InGroup& place) {
  CKPT_CHECK(take_name(tensor));
  index_->add_in_group(tensor.shape, place);
  map_.tensors.push_back(std::move(tensor));
  return {};
}

Result<> MapBuilder::add_partitioned(Tensor tensor, const PartitionIndex::Partitioned& place) {
  CKPT_CHECK(take_name(tensor));
  index_->add_partitioned(tensor.shape, place);
  map_.tensors.push_back(std::move(tensor));
  return {};
}

Result<> MapBuilder::add_pieces(Tensor tensor, std::vector<PartitionIndex::Piece> pieces) {
  CKPT_CHECK(take_name(tensor));
  index_->add_pieces(tensor.shape, std::move(pieces));
  map_.tensors.push_back(std::move(tensor));
  return {};
}

Result<> MapBuilder::add_object_tensor(const ObjectTensor& found) {
  Tensor tensor{.name = found.name,
                .path = splits_to(found.name, found.path) ? Path{} : found.path,
                .dtype = found.tensor.type.dtype,
                .shape = found.tensor.type.shape,
                .role = Role::slot,
                .true_dtype = found.tensor.type.true_dtype};
  return add_whole(std::move(tensor), found.tensor.where);
}

Result<> MapBuilder::add_pickle(const std::string& path, std::uint32_t file, Extent bytes) {
  return add_whole({.name = path, .path = {path}, .dtype = Dtype::u8, .shape = {bytes.size()}, .role = Role::blob},
                   {.file = file, .offset = bytes.begin, .dtype = Dtype::u8});
}

void MapBuilder::add_derived(std::size_t tensor) {
  map_.derived.push_back({static_cast<std::uint32_t>(tensor), static_cast<std::uint32_t>(map_.tensors.size() - 1)});
}

void MapBuilder::add_alias(std::string name, std::string target) {
  if (names_.insert(name).second) map_.aliases.push_back({std::move(name), std::move(target)});
}

void MapBuilder::find(Severity severity, std::string text, std::string file, std::string tensor) {
  map_.findings.push_back({severity, std::move(text), std::move(file), std::move(tensor)});
}

Map MapBuilder::take() {
  map_.index = std::move(index_);
  return std::move(map_);
}

Tensor module_tensor(const NamedTensor& entry, bool is_buffer) {
  return {.name = entry.name,
          .dtype = entry.tensor.type.dtype,
          .shape = entry.tensor.type.shape,
          .role = is_buffer ? Role::buffer : Role::param,
          .true_dtype = entry.tensor.type.true_dtype};
}

Tensor slot_tensor(const std::string& parameter, std::string_view slot, Dtype dtype, Shape shape) {
  return {.name = slot_name(parameter, slot),
          .dtype = dtype,
          .shape = std::move(shape),
          .role = Role::slot,
          .parameter = parameter,
          .slot = std::string(slot)};
}

ValuePtr text_value(std::string text) {
  return std::make_shared<const Value>(Value{std::move(text)});
}

GroupNames group_names(const ModelStates& model, std::uint64_t round_robin_ranks) {
  GroupNames names;
  for (std::size_t g = 0; g < model.param_shapes->size(); ++g) {
    const GroupShapes& group = (*model.param_shapes)[g];
    std::vector<ValuePtr>& members = names.emplace_back(group.size());
    // Each expert-parallel rank has a flat tensor of its own experts.
    const auto experts = model.expert_groups.find(g);
    const std::uint64_t sets = experts == model.expert_groups.end() ? 1 : experts->second.rank_count;
    const std::size_t length = group.size() / static_cast<std::size_t>(sets);
    const auto order = cut::round_robin(length, std::max<std::uint64_t>(round_robin_ranks / sets, 1));
    for (std::size_t at = 0; at < group.size(); ++at)
      members[at / length * length + order[at % length]] = text_value(group[at].name);
  }
  return names;
}

Result<std::vector<NamedObject>> group_objects(const OptimStates& states, const GroupNames* names) {
  List groups;
  for (const HyperGroup& group : states.hyper_groups) {
    List members;
    for (const std::uint64_t member : group.members) {
      if (names == nullptr) {
        members.items.push_back(std::make_shared<const Value>(Value{static_cast<std::int64_t>(member)}));
        continue;
      }
      if (member >= names->size()) {
        return fail({.code = Errc::corrupt,
                     .message = states.path + ": param_groups: member " + std::to_string(member) + " of " +
                                std::to_string(names->size()) + " groups",
                     .file = states.path});
      }
      members.items.insert(members.items.end(), (*names)[member].begin(), (*names)[member].end());
    }
    Dict values = std::get<Dict>(group.values.v);
    values.items.emplace_back(text_value("params"), std::make_shared<const Value>(Value{std::move(members)}));
    groups.items.push_back(std::make_shared<const Value>(Value{std::move(values)}));
  }
  List shared;
  for (std::size_t g = 0; names != nullptr && g < std::min(states.groups.size(), names->size()); ++g) {
    if (states.groups[g].values.empty()) continue;
    Dict values;
    for (const auto& [key, value] : states.groups[g].values) {
      values.items.emplace_back(text_value(key), std::make_shared<const Value>(value));
    }
    values.items.emplace_back(text_value("params"), std::make_shared<const Value>(Value{List{.items = (*names)[g]}}));
    shared.items.push_back(std::make_shared<const Value>(Value{std::move(values)}));
  }
  std::vector<NamedObject> out;
  if (!groups.items.empty()) out.push_back({"optimizer.param_groups", {}, {std::move(groups)}});
  if (!shared.items.empty()) out.push_back({"optimizer.group_state", {}, {std::move(shared)}});
  return out;
}

}  // namespace ckpt::deepspeed
