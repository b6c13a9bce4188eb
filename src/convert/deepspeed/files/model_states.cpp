#include "convert/deepspeed/files/model_states.hpp"

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

constexpr std::size_t kMostDimensions = 64;

Result<std::vector<NamedShape>> read_shapes(const StateFile& file, NodeId node, const std::string& what) {
  CKPT_TRY(const auto entries, file.named_entries(node, what));
  CKPT_CHECK(file.count_names(entries.size() * sizeof(NamedShape)));  // many groups may share one dict
  std::vector<NamedShape> shapes;
  shapes.reserve(entries.size());
  for (const auto& [name, value] : entries) {
    auto shape = torch::as_shape(file.graph(), value);
    if (!shape || shape->size() > kMostDimensions)
      return fail(with_tensor(file.error(Errc::corrupt, what + ": " + name + ": not a shape"), name));
    auto elements = checked_volume(*shape);
    if (!elements)
      return fail(with_tensor(file.error(Errc::corrupt, what + ": " + name + ": " + elements.error().message), name));
    shapes.push_back({name, *std::move(shape), *elements});
  }
  return shapes;
}

bool is_true(const StateFile& file, NodeId dict, std::string_view key) {
  const NodeId flag = dict == kNone ? kNone : file.find(dict, key);
  return flag != kNone && file.graph().kind(flag) == Kind::boolean && file.graph().boolean(flag);
}

bool config_flag(const StateFile& file, NodeId config, std::string_view section, std::string_view key) {
  const NodeId part = config == kNone ? kNone : file.find(config, section);
  return is_true(file, part, key);
}

/// One number a layer.
Result<std::vector<std::uint64_t>> read_expert_counts(const StateFile& file) {
  constexpr std::uint64_t kMaxExperts = std::uint64_t{1} << 20;  // of all layers
  std::vector<std::uint64_t> out;
  std::uint64_t sum = 0;
  const NodeId node = file.find(file.root(), "num_experts");
  if (node == kNone) return out;
  CKPT_TRY(const auto items, file.items(node, "num_experts"));
  for (const NodeId item : items) {
    const auto count = torch::as_integer(file.graph(), item);
    const std::uint64_t experts = count && *count > 0 ? static_cast<std::uint64_t>(*count) : 0;
    if (experts == 0 || experts > kMaxExperts - sum) {
      return fail(file.error(Errc::corrupt, "num_experts: not a number of experts"));
    }
    sum += experts;
    out.push_back(experts);
  }
  return out;
}

/// A key whose presence means a layout that this reader does not know.
Result<> refuse_unknown_layouts(const StateFile& file, const RunFacts& facts, ModelRanks ranks) {
  const auto refuse = [&](const std::string& kind) {
    return fail(with_hint(file.error(Errc::unsupported, "this is " + kind + ": not supported"), kWhatIsRead));
  };
  const auto count = [&](std::string_view key) -> std::size_t {
    const NodeId node = file.find(file.root(), key);
    if (node == kNone) return 0;
    if (const auto items = torch::as_sequence(file.graph(), node)) return items->size();
    if (const auto entries = torch::as_mapping(file.graph(), node)) return entries->size();
    return 1;
  };
  if (count("ds_autoep_layers") > 0 || count("autoep_layers") > 0 || count("folding") > 0) {
    return refuse("a DeepSpeed expert-parallel (AutoEP) checkpoint");
  }
  if (ranks == ModelRanks::several) return {};
  const std::uint64_t model_ranks =
      std::max({facts.pipeline_parallel, facts.tensor_parallel, facts.model_parallel.value_or(1)});
  if (model_ranks > 1) {
    return fail(
        with_hint(file.error(Errc::incomplete, "it is that of one of " + std::to_string(model_ranks) +
                                                   " model-parallel ranks: mp_rank_01_model_states.pt is missing"),
                  "each rank writes its own file: copy the missing ones from the nodes that wrote them"));
  }
  if (file.find(file.root(), "module") == kNone) return refuse("a DeepSpeed pipeline-parallel checkpoint (no module)");
  return {};
}

Result<> read_module(const StateFile& file, ModelStates& out) {
  CKPT_TRY(const auto entries, file.named_entries(file.find(file.root(), "module"), "module"));
  out.module.reserve(entries.size());
  for (const auto& [name, node] : entries) {
    CKPT_TRY(auto tensor, file.tensor(node, "module: " + name));
    if (tensor) {
      out.module.push_back({name, *std::move(tensor)});
    } else {
      out.module_objects.emplace_back(name, node);
    }
  }
  return {};
}

Result<> read_texts(const StateFile& file, std::string_view key, std::unordered_set<std::string>& out) {
  const NodeId node = file.find(file.root(), key);
  if (node == kNone) return {};
  CKPT_TRY(const auto items, file.items(node, key));
  for (const NodeId item : items) {
    CKPT_TRY(std::string text, file.text(item, std::string(key) + ": an item"));
    out.insert(std::move(text));
  }
  return {};
}

}  // namespace

bool is_layout_key(std::string_view key) {
  constexpr std::array kKeys{std::string_view("module"),
                             std::string_view("buffer_names"),
                             std::string_view("optimizer"),
                             std::string_view("param_shapes"),
                             std::string_view("shared_params"),
                             std::string_view("frozen_param_shapes"),
                             std::string_view("ds_version"),
                             std::string_view("frozen_param_fragments"),
                             std::string_view("dp_world_size"),
                             std::string_view("mp_world_size"),
                             std::string_view("checkpoint_parallel_dimensions")};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

Result<> check_same_steps(const StateFile& file, const RunFacts& facts, const RunFacts& of_rank_0) {
  if (facts.global_steps == of_rank_0.global_steps) return {};
  const auto text = [](const auto& step) { return step ? std::to_string(*step) : std::string("none"); };
  return fail(file.error(Errc::corrupt, "global_steps is " + text(facts.global_steps) + ", that of rank 0 is " +
                                            text(of_rank_0.global_steps) + ": the files are of different saves"));
}

Result<RunFacts> read_facts(const StateFile& file) {
  const NodeId root = file.root();
  if (!torch::as_mapping(file.graph(), root) || file.graph().find(root, "module") == kNone) {
    return fail(file.error(Errc::corrupt, "not DeepSpeed model states: no key 'module'"));
  }
  RunFacts facts;
  CKPT_TRY(facts.global_steps, file.natural(root, "global_steps"));
  CKPT_TRY(facts.skipped_steps, file.natural(root, "skipped_steps"));
  CKPT_TRY(facts.data_parallel, file.natural(root, "dp_world_size"));
  CKPT_TRY(facts.model_parallel, file.natural(root, "mp_world_size"));
  if (const NodeId mesh = file.find(root, "checkpoint_parallel_dimensions"); mesh != kNone) {
    CKPT_TRY(const auto tensor_parallel, file.natural(mesh, "tp_degree"));
    CKPT_TRY(const auto pipeline_parallel, file.natural(mesh, "pp_degree"));
    facts.tensor_parallel = tensor_parallel.value_or(1);
    facts.pipeline_parallel = pipeline_parallel.value_or(1);
  }
  if (const NodeId version = file.find(root, "ds_version"); version != kNone) {
    facts.version = torch::as_text(file.graph(), version).value_or("");
  }
  const NodeId config = file.find(root, "ds_config");
  facts.round_robin = config_flag(file, config, "zero_optimization", "round_robin_gradients");
  const bool bf16 = config_flag(file, config, "bf16", "enabled") || config_flag(file, config, "bfloat16", "enabled");
  facts.optim_prefix = bf16 ? "bf16_" : "";
  facts.data_before_experts = is_true(file, config, "use_data_before_expert_parallelism");
  return facts;
}

Result<ModelStates> read_model_states(const StateFile& file, ModelRanks ranks) {
  ModelStates out{.path = file.path()};
  CKPT_TRY(out.facts, read_facts(file));
  CKPT_CHECK(refuse_unknown_layouts(file, out.facts, ranks));
  CKPT_CHECK(read_module(file, out));
  CKPT_CHECK(read_texts(file, "buffer_names", out.buffer_names));
  CKPT_TRY(out.num_experts, read_expert_counts(file));
  const NodeId root = file.root();
  if (const NodeId shapes = file.find(root, "param_shapes"); shapes != kNone) {
    CKPT_TRY(const auto groups, file.items(shapes, "param_shapes"));
    out.param_shapes.emplace();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      CKPT_TRY(GroupShapes group, read_shapes(file, groups[g], "param_shapes: group " + std::to_string(g)));
      out.param_shapes->push_back(std::move(group));
    }
  }
  CKPT_TRY(out.frozen, read_shapes(file, file.find(root, "frozen_param_shapes"), "frozen_param_shapes"));
  CKPT_TRY(out.frozen_fragments, read_fragments(file));
  CKPT_TRY(const auto shared, file.named_entries(file.find(root, "shared_params"), "shared_params"));
  for (const auto& [name, node] : shared) {
    CKPT_TRY(std::string target, file.text(node, "shared_params: " + name));
    out.shared.emplace_back(name, std::move(target));
  }
  return out;
}

Result<> refuse_experts(const StateFile& file, const ModelStates& model) {
  if (model.num_experts.empty()) return {};
  return fail(
      with_hint(file.error(Errc::unsupported,
                           "this is a mixture-of-experts checkpoint (num_experts), which is not supported here"),
                kWhatIsRead));
}

Result<std::vector<NamedTensor>> read_fragments(const StateFile& file) {
  const NodeId node = file.find(file.root(), "frozen_param_fragments");
  CKPT_TRY(const auto entries, file.named_entries(node, "frozen_param_fragments"));
  std::vector<NamedTensor> out;
  for (const auto& [name, value] : entries) {
    CKPT_TRY(auto tensor, file.tensor(value, "frozen_param_fragments: " + name));
    if (!tensor) return fail(file.error(Errc::corrupt, "frozen_param_fragments: " + name + ": not a tensor"));
    out.push_back({name, *std::move(tensor)});
  }
  return out;
}

}  // namespace ckpt::deepspeed
