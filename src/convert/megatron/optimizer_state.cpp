#include "convert/megatron/optimizer_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "convert/megatron/buffer_layout.hpp"
#include "format/checked.hpp"
#include "format/model/object_tree.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::string_view kGroups = "param_groups.";
constexpr std::string_view kState = "state.";
constexpr std::string_view kMasters = "fp32_from_fp16_params.";
constexpr std::string_view kInner = "optimizer.";

struct Group {
  std::map<std::uint64_t, std::uint64_t> ids{};  // of its parameters, by position
  bool has_decay = true;
  bool is_expert = false;
};

/// "7.rest": the number and the rest.
std::optional<std::pair<std::uint64_t, std::string_view>> numbered(std::string_view text) {
  const auto number = take_number<std::uint64_t>(text);
  if (!number || !text.starts_with('.')) return std::nullopt;
  return std::pair(*number, text.substr(1));
}

bool is_zero(const Value& value) {
  return real_number(&value) == 0.0;
}

/// The groups of each optimizer, by the prefix of its state dict: "optimizer.optimizer.", "optimizer.1.optimizer.".
std::map<std::string, std::map<std::uint64_t, Group>> groups_of(const Map& map) {
  std::map<std::string, std::map<std::uint64_t, Group>> out;
  for (const NamedObject& object : map.objects) {
    const std::size_t at = object.name.find(kGroups);
    if (!object.name.starts_with(kInner) || at == std::string::npos) continue;
    const auto group = numbered(std::string_view(object.name).substr(at + kGroups.size()));
    if (!group) continue;
    Group& own = out[object.name.substr(0, at)][group->first];
    std::string_view field = group->second;
    if (field == "wd_mult") own.has_decay = !is_zero(object.value);
    if (field == "is_expert_parallel")
      own.is_expert = std::get_if<bool>(&object.value.v) != nullptr && std::get<bool>(object.value.v);
    if (const auto* list = field == "params" ? std::get_if<List>(&object.value.v) : nullptr) {  // long ones are whole
      for (std::uint64_t i = 0; i < list->items.size(); ++i)
        if (const auto id = whole_number(list->items[i].get()); id && *id >= 0)
          own.ids[i] = static_cast<std::uint64_t>(*id);
    }
    if (!field.starts_with("params.")) continue;
    field.remove_prefix(std::string_view("params.").size());
    const auto position = parse_number<std::uint64_t>(field);
    const auto* id = std::get_if<std::int64_t>(&object.value.v);
    if (position && id != nullptr && *id >= 0) own.ids[*position] = static_cast<std::uint64_t>(*id);
  }
  return out;
}

/// The parts of a group, in its order; nothing if their number is another than the group's. With one expert-parallel rank
/// experts are in the groups of other weights.
std::optional<std::vector<const Part*>> parts_of(const Group& group, std::span<const Part* const> parts,
                                                 bool has_expert_groups) {
  std::vector<const Part*> out;
  for (const Part* part : parts) {
    const bool is_expert = has_expert_groups && part->weight.expert.has_value();
    if (is_decayed(part->weight.name, part->shape) == group.has_decay && is_expert == group.is_expert)
      out.push_back(part);
  }
  if (out.size() != group.ids.size()) return std::nullopt;
  return out;
}

class NumberedState {
 public:
  NumberedState(const Map& map, std::span<const Part* const> parts, std::uint32_t file)
      : map_(map), parts_(parts), file_(file) {
    for (std::size_t t = 0; t < map.tensors.size(); ++t) by_name_.emplace(map.tensors[t].name, t);
  }

  Result<FoundState> run() {
    const auto all = groups_of(map_);
    const bool has_expert_groups = std::ranges::any_of(all, [](const auto& one) {
      return std::ranges::any_of(one.second, [](const auto& group) { return group.second.is_expert; });
    });
    for (const auto& [prefix, groups] : all) {
      // "optimizer.optimizer." is the inner one's, beside the masters.
      const bool is_inner = prefix.size() > kInner.size() && prefix.ends_with(kInner);
      const std::string outer = is_inner ? prefix.substr(0, prefix.size() - kInner.size()) : prefix;
      std::unordered_map<std::uint64_t, const Part*> by_id;
      for (const auto& [number, group] : groups) {
        const auto members = parts_of(group, parts_, has_expert_groups);
        if (!members) {
          out_.is_unknown = out_.is_unknown || !group.ids.empty();
          continue;
        }
        std::size_t next = 0;
        for (const auto& [position, id] : group.ids) {
          const Part* part = (*members)[next++];
          by_id.emplace(id, part);
          CKPT_CHECK(add(outer + std::string(kMasters) + std::to_string(number) + "." + std::to_string(position), part,
                         "master"));
        }
      }
      CKPT_CHECK(add_slots(prefix + std::string(kState), by_id));
    }
    return std::move(out_);
  }

 private:
  Result<> add_slots(const std::string& prefix, const std::unordered_map<std::uint64_t, const Part*>& by_id) {
    for (const Tensor& tensor : map_.tensors) {
      if (!tensor.name.starts_with(prefix)) continue;
      const auto slot = numbered(std::string_view(tensor.name).substr(prefix.size()));
      const auto part = slot ? by_id.find(slot->first) : by_id.end();
      if (part == by_id.end()) {
        out_.is_unknown = true;
        continue;
      }
      CKPT_CHECK(add(tensor.name, part->second, std::string(slot->second)));
    }
    return {};
  }

  Result<> add(const std::string& name, const Part* part, const std::string& slot) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return {};
    const Tensor& tensor = map_.tensors[found->second];
    const bool is_scalar = tensor.shape.empty() && !part->shape.empty();
    if (!is_scalar && tensor.shape != part->shape) {
      out_.is_unknown = true;
      return {};
    }
    StateOfPart state{.part = part, .tensor = found->second, .slot = slot, .is_scalar = is_scalar};
    CKPT_TRY(state.where, locate(map_, found->second, file_));
    out_.states.push_back(std::move(state));
    return {};
  }

  const Map& map_;
  std::span<const Part* const> parts_;
  std::uint32_t file_;
  std::unordered_map<std::string_view, std::size_t> by_name_{};
  FoundState out_{};
};

/// A flat tensor by its name: "0.(torch bfloat16, torch float32).exp_avg", or with the optimizer's number before.
struct FlatName {
  std::optional<std::uint64_t> optimizer{};
  std::uint64_t buffer = 0;
  std::string_view slot{};
};
std::optional<FlatName> flat_name(std::string_view name) {
  const auto first = numbered(name);
  if (!first) return std::nullopt;
  FlatName out{.buffer = first->first};
  std::string_view rest = first->second;
  if (const auto second = numbered(rest)) {
    out.optimizer = first->first;
    out.buffer = second->first;
    rest = second->second;
  }
  const std::size_t end = rest.rfind(").");
  if (!rest.starts_with('(') || end == std::string_view::npos) return std::nullopt;
  out.slot = rest.substr(end + 2);
  return out;
}

/// Offsets in elements of the parts of one buffer, which are views of one storage; nothing if they are not.
std::optional<std::vector<std::uint64_t>> offsets_of(std::span<const Part* const> parts) {
  if (parts.empty()) return std::nullopt;
  const auto first = std::ranges::min_element(parts, {}, [](const Part* part) { return part->where.offset; });
  std::vector<std::uint64_t> out;
  for (const Part* part : parts) {
    const Locator& base = (*first)->where;
    const bool is_same_storage = !base.crc || (part->where.crc && part->where.crc->begin == base.crc->begin);
    if (part->dtype != (*first)->dtype || !part->where.strides.empty() || !is_same_storage) return std::nullopt;
    out.push_back((part->where.offset - base.offset) / unit_bytes(part->dtype));
  }
  return out;
}

/// Whether the parts at these offsets do not follow each other as the weights of a buffer do: aligned or, as in older
/// releases, without anything between them.
bool has_hole(std::span<const Part* const> parts, const std::vector<std::uint64_t>& offsets) {
  std::vector<Extent> places;
  for (std::size_t i = 0; i < parts.size(); ++i) places.push_back({offsets[i], offsets[i] + volume(parts[i]->shape)});
  std::ranges::sort(places, {}, &Extent::begin);
  for (std::size_t i = 1; i < places.size(); ++i)
    if (places[i].begin > round_up(places[i - 1].end, kBufferAlignment)) return true;
  return false;
}

/// The same offsets in distrib_optim.pt; nothing if the parts lie in another way.
/// errors  incomplete: the state is of weights, too, that the rank's other file lacks
Result<std::optional<std::vector<std::uint64_t>>> offsets_in_file(std::span<const Part* const> parts,
                                                                  std::uint64_t elements, const RunShape& shape,
                                                                  std::uint64_t stage, const std::string& path) {
  const auto offsets = offsets_of(parts);
  if (!offsets) return offsets;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) end = std::max(end, (*offsets)[i] + volume(parts[i]->shape));
  if (elements == end && has_hole(parts, *offsets))
    return fail({.code = Errc::incomplete,
                 .message = fmt::format("{}: it holds state of a weight that {} lacks", path, kModelFile),
                 .file = path,
                 .hint = std::string(kCopyAgain)});
  if (elements == end) return offsets;  // one bucket, or no padding between them
  std::vector<BufferedWeight> weights;
  const std::string_view copy = shape.pipeline > 1 ? copied_embedding(shape.is_tied, shape.has_prediction) : "";
  for (const Part* part : parts)
    weights.push_back({.elements = volume(part->shape),
                       .is_shared = !copy.empty() && (part->weight.name == kEmbedding || part->weight.name == copy)});
  BucketRules rules = shape.buckets;
  if (stage != 0 || parts.front()->chunk != 0) rules.elements.reset();
  return joined_offsets(weights, *offsets, elements, rules);
}

}  // namespace

bool is_decayed(std::string_view name, const Shape& shape) {
  return shape.size() != 1 && !name.ends_with(".bias");
}

Result<FoundState> find_numbered_state(const Map& map, std::span<const Part* const> parts, std::uint32_t file) {
  return NumberedState(map, parts, file).run();
}

Result<FoundState> find_flat_state(const Map& map, std::span<const Part* const> parts, std::uint32_t file,
                                   const RunShape& shape, std::uint64_t stage, const std::string& root) {
  const std::string path = join_path(root, map.files.front().path);
  FoundState out;
  for (std::size_t t = 0; t < map.tensors.size(); ++t) {
    const Tensor& tensor = map.tensors[t];
    if (tensor.role == Role::blob) continue;
    const auto name = flat_name(tensor.name);
    std::vector<const Part*> own;
    for (const Part* part : parts)
      if (name && part->chunk == name->buffer &&
          (!name->optimizer || part->weight.expert.has_value() == (*name->optimizer == 1)))
        own.push_back(part);
    std::optional<std::vector<std::uint64_t>> offsets;
    if (tensor.shape.size() == 1) {
      CKPT_TRY(offsets, offsets_in_file(own, tensor.shape.front(), shape, stage, path));
    }
    if (!offsets) {
      out.is_unknown = true;
      continue;
    }
    CKPT_TRY(const Locator flat, locate(map, t, file));
    if (!flat.strides.empty()) {
      out.is_unknown = true;
      continue;
    }
    for (std::size_t i = 0; i < own.size(); ++i) {
      StateOfPart state{.part = own[i],
                        .tensor = t,
                        .slot = name->slot == "param" ? "master" : std::string(name->slot),
                        .where = flat};
      state.where.offset += (*offsets)[i] * unit_bytes(flat.dtype);
      out.states.push_back(std::move(state));
    }
  }
  return out;
}

}  // namespace ckpt::megatron
