#include "convert/deepspeed/files/optim_states.hpp"

#include <algorithm>
#include <array>

#include "convert/deepspeed/files/files.hpp"
#include "format/checked.hpp"
#include "format/torch/torch_object.hpp"

namespace ckpt::deepspeed {

using pickle::Kind;
using pickle::kNone;
using pickle::NodeId;

namespace {

constexpr std::uint64_t kMostRanks = std::uint64_t{1} << 24;

/// Keys of the inner dict that say how the rest is laid out, or that are read by name; every other key is an object.
bool is_partition_key(std::string_view key) {
  constexpr std::array kKeys{std::string_view("zero_stage"),
                             std::string_view("partition_count"),
                             std::string_view("single_partition_of_fp32_groups"),
                             std::string_view("fp32_flat_groups"),
                             std::string_view("base_optimizer_state"),
                             std::string_view("base_optimizer_state_step"),
                             std::string_view("optimizer_state_dict"),
                             std::string_view("group_paddings"),
                             std::string_view("param_alignment_paddings"),
                             std::string_view("param_slice_mappings"),
                             std::string_view("param_groups"),
                             std::string_view("ds_version")};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

auto refuse(const StateFile& file, const std::string& kind) {
  return fail(with_hint(file.error(Errc::unsupported, "this is " + kind + ": not supported"), kWhatIsRead));
}

std::string optim_group_text(std::size_t group) {
  return "group " + std::to_string(group);
}

/// The inner dict; `optimizer_state_dict` of the file.
Result<NodeId> inner_dict(const StateFile& file) {
  const NodeId inner = file.find(file.root(), "optimizer_state_dict");
  if (inner == kNone || !torch::as_mapping(file.graph(), inner)) {
    return fail(file.error(Errc::corrupt, "not DeepSpeed optimizer states: no dict 'optimizer_state_dict'"));
  }
  return inner;
}

/// partition_count: one number (stage 3) or one per group; these differ only with experts.
Result<std::vector<std::uint64_t>> part_counts(const StateFile& file, NodeId inner) {
  const NodeId node = file.find(inner, "partition_count");
  if (node == kNone) return fail(file.error(Errc::corrupt, "partition_count: missing"));
  std::vector<NodeId> counts{node};
  if (auto items = torch::as_sequence(file.graph(), node)) counts = *std::move(items);
  std::vector<std::uint64_t> out;
  for (const NodeId count : counts) {
    const auto value = torch::as_integer(file.graph(), count);
    if (!value || *value < 1 || static_cast<std::uint64_t>(*value) > kMostRanks) {
      return fail(file.error(Errc::corrupt, "partition_count: not a number of ranks"));
    }
    out.push_back(static_cast<std::uint64_t>(*value));
  }
  if (out.empty()) return fail(file.error(Errc::corrupt, "partition_count: empty"));
  return out;
}

Result<std::vector<GroupState>> read_masters(const StateFile& file, NodeId list, std::string_view key) {
  CKPT_TRY(const auto nodes, file.items(list, key));
  std::vector<GroupState> groups(nodes.size());
  for (std::size_t g = 0; g < nodes.size(); ++g) {
    const std::string what = std::string(key) + ": " + optim_group_text(g);
    CKPT_TRY(const auto tensor, file.tensor(nodes[g], what));
    if (!tensor) return fail(file.error(Errc::corrupt, what + ": not a tensor"));
    if (tensor->elements() == 0 && tensor->view.attributes != kNone) {
      const NodeId id = file.find(tensor->view.attributes, "ds_id");
      if (id != kNone) groups[g].swapped = torch::as_text(file.graph(), id).value_or("");
    }
    CKPT_TRY(groups[g].master, as_run(file, *tensor, what));
  }
  return groups;
}

Result<> read_declared_fragments(const StateFile& file, NodeId inner, std::vector<GroupState>& groups) {
  const NodeId node = file.find(inner, "param_slice_mappings");
  if (node == kNone) return {};
  CKPT_TRY(const auto mappings, file.items(node, "param_slice_mappings"));
  for (std::size_t g = 0; g < std::min(mappings.size(), groups.size()); ++g) {
    const std::string what = "param_slice_mappings: " + optim_group_text(g);
    CKPT_TRY(const auto entries, file.named_entries(mappings[g], what));
    for (const auto& [name, address] : entries) {
      const NodeId state = file.graph().kind(address) == Kind::call ? file.graph().state(address) : address;
      if (state == kNone) return fail(file.error(Errc::corrupt, what + ": " + name + ": not a fragment address"));
      CKPT_TRY(const auto start, file.natural(state, "start"));
      CKPT_TRY(const auto count, file.natural(state, "numel"));
      if (!start || !count) return fail(file.error(Errc::corrupt, what + ": " + name + ": not a fragment address"));
      CKPT_TRY(const std::uint64_t end, checked_add(*start, *count));
      groups[g].fragments.emplace_back(name, Extent{*start, end});
    }
  }
  return {};
}

Result<> read_alignment(const StateFile& file, NodeId inner, std::vector<GroupState>& groups) {
  const NodeId node = file.find(inner, "param_alignment_paddings");
  if (node == kNone) return {};
  CKPT_TRY(const auto lists, file.items(node, "param_alignment_paddings"));
  if (lists.size() != groups.size())
    return fail(file.error(Errc::corrupt, "param_alignment_paddings: not one for each group"));
  for (std::size_t g = 0; g < lists.size(); ++g) {
    auto paddings = torch::as_shape(file.graph(), lists[g]);
    if (!paddings)
      return fail(
          file.error(Errc::corrupt, "param_alignment_paddings: " + optim_group_text(g) + ": not a list of counts"));
    groups[g].alignment_paddings = *std::move(paddings);
  }
  return {};
}

/// Stages 1 and 2: a torch state dict keyed by group, or, with elastic_checkpoint, a list of the groups' states.
Result<> read_base_optimizer(const StateFile& file, NodeId inner, OptimStates& out, ObjectReader& objects) {
  const NodeId base = file.find(inner, "base_optimizer_state");
  if (base == kNone) return {};
  if (const auto elastic = torch::as_sequence(file.graph(), base)) {
    if (elastic->size() != out.groups.size()) {
      return fail(file.error(Errc::corrupt, "base_optimizer_state: not one for each group"));
    }
    for (std::size_t g = 0; g < elastic->size(); ++g) {
      CKPT_CHECK(
          read_slots(file, (*elastic)[g], "base_optimizer_state: " + optim_group_text(g), objects, out.groups[g]));
    }
    CKPT_TRY(const auto step, file.natural(inner, "base_optimizer_state_step"));
    for (GroupState& group : out.groups) {  // FusedAdam counts in the state, and leaves this at 0
      const bool counts =
          std::ranges::find(group.values, "step", &std::pair<std::string, Value>::first) != group.values.end();
      if (step && !counts) group.values.emplace_back("step", Value{static_cast<std::int64_t>(*step)});
    }
    return {};
  }
  CKPT_TRY(out.hyper_groups, read_hyper_groups(file, file.find(base, "param_groups"), objects));
  if (out.hyper_groups.size() != out.groups.size()) {
    return fail(file.error(Errc::corrupt, "base_optimizer_state: " + std::to_string(out.hyper_groups.size()) +
                                              " parameter groups, but " + std::to_string(out.groups.size()) +
                                              " groups of fp32 weights"));
  }
  CKPT_TRY(const auto states, read_state_entries(file, file.find(base, "state")));
  for (std::size_t g = 0; g < out.groups.size(); ++g) {
    const auto& members = out.hyper_groups[g].members;
    if (members.size() != 1) {
      return fail(file.error(Errc::corrupt, "base_optimizer_state: " + optim_group_text(g) + ": not one flat tensor"));
    }
    const auto entry = states.find(members[0]);
    out.hyper_groups[g].members = {g};
    if (entry == states.end()) continue;  // no step was taken yet, or the optimizer keeps no state
    CKPT_CHECK(read_slots(file, entry->second, "base_optimizer_state: " + optim_group_text(g), objects, out.groups[g]));
  }
  return {};
}

/// DeepSpeed's disk queue writes a multiple of 1024 bytes with each of its threads.
/// source   deepspeed/runtime/swap_tensor/aio_config.py; `thread_count` is the key's name before 0.16.4
Result<std::uint64_t> swap_alignment(const StateFile& file) {
  constexpr std::uint64_t kMaxThreads = 4096;
  const NodeId config = file.find(file.root(), "ds_config");
  const NodeId aio = config == kNone ? kNone : file.find(config, "aio");
  if (aio == kNone) return 1024;
  CKPT_TRY(auto threads, file.natural(aio, "intra_op_parallelism"));
  if (!threads) {
    CKPT_TRY(threads, file.natural(aio, "thread_count"));
  }
  if (threads.value_or(1) < 1 || threads.value_or(1) > kMaxThreads) {
    return fail(file.error(Errc::corrupt, "ds_config: aio: not a number of threads"));
  }
  return 1024 * threads.value_or(1);
}

/// Stage 3: a torch state dict keyed by sub-group.
Result<> read_sub_group_optimizer(const StateFile& file, NodeId inner, OptimStates& out, ObjectReader& objects) {
  const NodeId base = file.find(inner, "optimizer_state_dict");
  if (base == kNone) return {};
  CKPT_TRY(out.hyper_groups, read_hyper_groups(file, file.find(base, "param_groups"), objects));
  CKPT_TRY(const auto states, read_state_entries(file, file.find(base, "state")));
  for (std::size_t s = 0; s < out.groups.size(); ++s) {
    const auto entry = states.find(s);
    if (entry == states.end()) continue;
    CKPT_CHECK(
        read_slots(file, entry->second, "optimizer_state_dict: sub-" + optim_group_text(s), objects, out.groups[s]));
  }
  return {};
}

}  // namespace

Result<std::vector<NamedObject>> optimizer_objects(const StateFile& file, NodeId dict, ObjectReader& objects) {
  std::vector<NamedObject> out;
  CKPT_TRY(const auto entries, file.named_entries(dict, "optimizer_state_dict"));
  for (const auto& [key, node] : entries) {
    if (is_partition_key(key)) continue;
    const Path path{"optimizer", key};
    CKPT_TRY(Value value, objects.read(node, path));
    out.push_back({dotted(path), splits_to(dotted(path), path) ? Path{} : path, std::move(value)});
  }
  return out;
}

bool is_elementwise(std::string_view slot) {
  constexpr std::array kNames{std::string_view("exp_avg"),        std::string_view("exp_avg_sq"),
                              std::string_view("max_exp_avg_sq"), std::string_view("momentum_buffer"),
                              std::string_view("square_avg"),     std::string_view("sum")};
  return std::find(kNames.begin(), kNames.end(), slot) != kNames.end();
}

std::optional<Run> dense_run(const FileTensor& tensor) {
  if (!tensor.where.strides.empty() || !tensor.type.true_dtype.empty() || is_packed(tensor.type.dtype))
    return std::nullopt;
  return Run{.offset = tensor.where.offset,
             .elements = tensor.elements(),
             .file = tensor.where.file,
             .dtype = tensor.where.dtype,
             .big_endian = tensor.where.big_endian,
             .crc = tensor.where.crc};
}

Result<Run> as_run(const StateFile& file, const FileTensor& tensor, const std::string& what) {
  const auto run = tensor.type.shape.size() == 1 ? dense_run(tensor) : std::nullopt;
  if (!run) return fail(file.error(Errc::corrupt, what + ": not a flat tensor"));
  return *run;
}

Result<std::unordered_map<std::uint64_t, NodeId>> read_state_entries(const StateFile& file, NodeId state) {
  std::unordered_map<std::uint64_t, NodeId> out;
  if (state == kNone) return out;
  const auto entries = torch::as_mapping(file.graph(), state);
  if (!entries) return fail(file.error(Errc::corrupt, "optimizer state: not a dict"));
  for (const auto& [key, value] : *entries) {
    const auto index = torch::as_integer(file.graph(), key);
    if (!index || *index < 0) return fail(file.error(Errc::corrupt, "optimizer state: a key is not an index"));
    out.emplace(static_cast<std::uint64_t>(*index), value);
  }
  return out;
}

Result<> read_slots(const StateFile& file, NodeId entry, const std::string& what, ObjectReader& objects,
                    GroupState& out) {
  CKPT_TRY(const auto entries, file.named_entries(entry, what));
  for (const auto& [name, node] : entries) {
    const std::string here = what + ": " + name;
    CKPT_TRY(const auto tensor, file.tensor(node, here));
    if (tensor && !tensor->type.shape.empty()) {
      CKPT_TRY(Run run, as_run(file, *tensor, here));
      out.slots.emplace_back(name, std::move(run));
      continue;
    }
    if (tensor) {
      CKPT_TRY(auto value, file.scalar(*tensor));
      if (!value) return fail(file.error(Errc::unsupported, here + ": a value of this type is not supported"));
      out.values.emplace_back(name, *std::move(value));
      continue;
    }
    if (torch::as_sequence(file.graph(), node) || torch::as_mapping(file.graph(), node)) {
      return fail(file.error(Errc::unsupported, here + ": optimizer state of this form is not supported"));
    }
    // Plain Python values of the group: a step counted as an int, flags.
    CKPT_TRY(Value value, objects.read_plain(node, here));
    out.values.emplace_back(name, std::move(value));
  }
  // After a start from a universal folder each process has its own order: that of a Python set of the names.
  std::ranges::sort(out.slots, {}, &std::pair<std::string, Run>::first);
  return {};
}

Result<std::vector<HyperGroup>> read_hyper_groups(const StateFile& file, NodeId list, ObjectReader& objects) {
  std::vector<HyperGroup> out;
  if (list == kNone) return out;
  CKPT_TRY(const auto nodes, file.items(list, "param_groups"));
  for (std::size_t g = 0; g < nodes.size(); ++g) {
    HyperGroup group;
    const NodeId params = file.find(nodes[g], "params");
    auto members = params == kNone ? std::nullopt : torch::as_shape(file.graph(), params);
    if (!members) return fail(file.error(Errc::corrupt, "param_groups: " + optim_group_text(g) + ": no list 'params'"));
    group.members.assign(members->begin(), members->end());
    const Path path{"optimizer", "param_groups", static_cast<std::int64_t>(g)};
    CKPT_TRY(group.values, objects.read(nodes[g], path));
    auto* values = std::get_if<Dict>(&group.values.v);
    if (values == nullptr)
      return fail(file.error(Errc::corrupt, "param_groups: " + optim_group_text(g) + ": not a dict"));
    std::erase_if(values->items, [](const auto& item) {
      const auto* key = std::get_if<std::string>(&item.first->v);
      return key != nullptr && *key == "params";
    });
    out.push_back(std::move(group));
  }
  return out;
}

Result<OptimHead> read_optim_head(const StateFile& file) {
  CKPT_TRY(const NodeId inner, inner_dict(file));
  const auto has = [&](std::string_view key) { return file.find(inner, key) != kNone; };
  if (has("ds_zero_partition_groups")) return refuse(file, "a DeepSpeed expert-parallel (AutoEP) checkpoint");
  CKPT_TRY(auto stage, file.natural(inner, "zero_stage"));
  const bool bf16_optimizer = !stage && has("single_partition_of_fp32_groups");
  if (bf16_optimizer) stage = 1;
  if (!stage || *stage < 1 || *stage > 3) {
    return fail(file.error(Errc::corrupt, "zero_stage: " + (stage ? std::to_string(*stage) : "missing")));
  }
  CKPT_TRY(auto parts, part_counts(file, inner));
  const std::uint64_t most = *std::max_element(parts.begin(), parts.end());
  return OptimHead{
      .stage = *stage, .part_count = most, .part_counts = std::move(parts), .bf16_optimizer = bf16_optimizer};
}

Result<OptimStates> read_optim_states(const StateFile& file, ObjectReader& objects) {
  CKPT_TRY(const OptimHead head, read_optim_head(file));
  CKPT_TRY(const NodeId inner, inner_dict(file));
  OptimStates out{
      .path = file.path(), .stage = head.stage, .part_count = head.part_count, .part_counts = head.part_counts};
  if (head.stage == 3) {
    CKPT_TRY(out.groups, read_masters(file, file.find(inner, "fp32_flat_groups"), "fp32_flat_groups"));
    CKPT_CHECK(read_sub_group_optimizer(file, inner, out, objects));
    CKPT_TRY(out.swap_alignment, swap_alignment(file));
  } else {
    constexpr std::string_view kKey = "single_partition_of_fp32_groups";
    CKPT_TRY(out.groups, read_masters(file, file.find(inner, kKey), kKey));
    out.padding_kept = head.bf16_optimizer || file.find(inner, "group_paddings") == kNone;
    CKPT_CHECK(read_base_optimizer(file, inner, out, objects));
    CKPT_CHECK(read_declared_fragments(file, inner, out.groups));
    CKPT_CHECK(read_alignment(file, inner, out.groups));
  }
  CKPT_TRY(out.objects, optimizer_objects(file, inner, objects));
  return out;
}

}  // namespace ckpt::deepspeed
