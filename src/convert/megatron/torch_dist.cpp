#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "convert/formats.hpp"
#include "convert/join_maps.hpp"
#include "convert/megatron/buckets.hpp"
#include "convert/megatron/flattened_state.hpp"
#include "convert/megatron/integrity.hpp"
#include "convert/megatron/iteration.hpp"
#include "convert/megatron/local_files.hpp"
#include "convert/megatron/run_arguments.hpp"
#include "convert/megatron/run_config.hpp"
#include "convert/megatron/source_state.hpp"
#include "convert/megatron/stored_objects.hpp"
#include "convert/megatron/writer.hpp"
#include "convert/megatron/zarr.hpp"
#include "convert/model_arguments.hpp"
#include "convert/torch_archive.hpp"
#include "format/files/yaml.hpp"
#include "format/hash.hpp"
#include "format/model/slot_name.hpp"
#include "format/text/error_context.hpp"

namespace ckpt {
namespace {

using megatron::Iteration;
using megatron::Layout;

constexpr std::array kTrackers{megatron::kTracker};
constexpr std::array<std::string_view, 1> kSteps{"iter_#"};
constexpr std::array<std::string_view, 1> kMarkers{"metadata.json"};
constexpr std::array<std::string_view, 5> kOwnNames{".metadata", "metadata.json", megatron::kIntegrity,
                                                    "latest_train_state.pt", megatron::kTracker};
constexpr std::string_view kRunConfig = "run_config.yaml";
constexpr std::string_view kTrainState = "train_state.pt";
constexpr std::uint64_t kMostConfigBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kMostCommonBytes = std::uint64_t{16} << 20;

Result<std::optional<Match>> detect_local_files(const Place& place) {
  CKPT_TRY(const auto local, megatron::find_local_files(place));
  if (!local) return std::nullopt;
  return Match{.where = {}, .why = fmt::format("RANK/iter_{:07}_RANK_local.pt", local->iteration)};
}

Result<std::optional<Match>> detect_torch_dist(const Place& place) {
  CKPT_TRY(auto found, megatron::find_iteration(place));
  if (!found) return detect_local_files(place);
  // A tracker that names nothing is reported by `open`.
  if (found->layout == Layout::rank_files) return std::nullopt;
  return Match{.where = std::move(found->directory), .why = std::move(found->why)};
}

/// The text after `prefix`; nothing without it.
std::optional<std::string_view> after(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return text.substr(prefix.size());
}

/// A name without the modules that wrap a model: "model.module.decoder...", "module.module.decoder...".
std::string_view bare_name(std::string_view name) {
  for (const std::string_view wrapper : {"model.", "module.", "module.", "module."})
    if (name.starts_with(wrapper)) name.remove_prefix(wrapper.size());
  return name;
}

/// Names of the checkpoint's tensors.
class Names {
 public:
  explicit Names(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) {
      all_.insert(tensor.name);
      if (tensor.role == Role::param) by_bare_name_.emplace(bare_name(tensor.name), tensor.name);
    }
  }

  /// What "<slot>.<weight>" or, of Megatron-FSDP, "<wrapped weight>.<slot>" belongs to; the weight may not be there.
  struct State {
    std::string slot{};
    std::string weight{};
  };
  State state_of(std::string_view text) const {
    const std::size_t first = std::min(text.find('.'), text.size());
    State out{.slot = std::string(text.substr(0, first)),
              .weight = std::string(text.substr(std::min(first + 1, text.size())))};
    if (all_.contains(out.weight)) return out;
    const std::size_t last = std::min(text.rfind('.'), text.size());
    const auto wrapped = by_bare_name_.find(std::string(bare_name(text.substr(0, last))));
    if (wrapped != by_bare_name_.end()) return {.slot = std::string(text.substr(last + 1)), .weight = wrapped->second};
    out.weight.clear();
    return out;
  }
  /// Whether it is new, and then taken.
  bool take(const std::string& name) { return all_.insert(name).second; }

 private:
  std::unordered_set<std::string> all_{};
  std::unordered_map<std::string, std::string> by_bare_name_{};
};

/// What the names of optimizer state mean, which DCP cannot know: `optimizer.state.<slot>.<weight>`, and the buckets of
/// the distributed optimizer, `optimizer.distributed....<slot>`, which belong to many weights. Of several optimizers
/// each has a prefix `chained_<n>.`. Megatron-FSDP (fsdp_dtensor) has `optimizer.state.<weight>.<slot>`.
///
/// source  megatron/core/optimizer/distrib_optimizer.py: sharded_param_state_fs_model_space,
///         sharded_param_state_dp_reshardable, sharded_param_state_fsdp_dtensor
void assign_slots(std::vector<Tensor>& tensors) {
  Names names(tensors);
  for (Tensor& tensor : tensors) {
    if (tensor.role == Role::blob) continue;
    std::string_view name = tensor.name;
    if (name.starts_with("chained_")) name.remove_prefix(std::min(name.find('.'), name.size() - 1) + 1);
    if (after(name, "optimizer.distributed.")) {
      tensor.role = Role::slot;
      tensor.parameter.clear();
      tensor.slot = name.substr(name.rfind('.') + 1);
    } else if (const auto state = after(name, "optimizer.state.")) {
      Names::State found = names.state_of(*state);
      tensor.role = Role::slot;
      tensor.slot = found.slot == "param" || found.slot == "fp32_param" ? "master" : std::move(found.slot);
      if (found.weight.empty()) continue;
      tensor.parameter = std::move(found.weight);
      std::string usual = slot_name(tensor.parameter, tensor.slot);  // as in other formats
      if (usual == tensor.name || !names.take(usual)) continue;
      tensor.name = std::move(usual);
      tensor.path.clear();
    }
  }
}

/// Forms of the optimizer's state that keep the layout of the run that saved it.
void note_forms(Map& map) {
  const auto is_bucket = [](const Tensor& tensor) { return tensor.name.find(".gbuf_idx_") != std::string::npos; };
  if (std::ranges::any_of(map.tensors, is_bucket))
    map.findings.push_back({.text = "the optimizer's state is in buckets (dp_reshardable), which belong to one tensor- "
                                    "and pipeline-parallel layout: it is kept as it is"});
  const auto is_gathered = [](const Tensor& tensor) {
    return tensor.role == Role::blob && tensor.name.starts_with("optimizer.distributed.") &&
           tensor.name.find(".param_state/") != std::string::npos;
  };
  if (std::ranges::any_of(map.tensors, is_gathered))
    map.findings.push_back({.severity = Severity::warning,
                            .text =
                                "cannot read optimizer state in pickled form (dp_zero_gather_scatter): it is kept as "
                                "bytes only",
                            .skipped = Skipped::training_state});
  std::unordered_map<std::string_view, const Shape*> shapes;
  for (const Tensor& tensor : map.tensors)
    if (tensor.role == Role::param) shapes.emplace(tensor.name, &tensor.shape);
  const auto is_flat = [&](const Tensor& tensor) {
    if (tensor.role != Role::slot || tensor.parameter.empty()) return false;
    const auto weight = shapes.find(tensor.parameter);
    return weight != shapes.end() && *weight->second != tensor.shape;
  };
  if (std::ranges::any_of(map.tensors, is_flat))
    map.findings.push_back({.text = "the optimizer's state is flattened (megatron-core before 0.15): it is kept as it "
                                    "is, in other shapes than the weights"});
}

/// The object of an item in a data file. torch.save wrote it, in a list of one.
Result<ValuePtr> read_item(Io& io, const std::string& path, Extent item) {
  CKPT_TRY(const FileHandle handle, io.open(path, {}));
  auto archive = open_torch_archive(io, handle, path, item);
  static_cast<void>(io.close(handle));
  if (!archive) return fail(std::move(archive).error());
  CKPT_TRY(ValuePtr value, torch::to_value(archive->graph, archive->graph.root(),
                                           [](pickle::NodeId) -> std::optional<std::string> { return std::nullopt; }));
  const auto* list = std::get_if<List>(&value->v);
  return list != nullptr && list->items.size() == 1 ? list->items.front() : value;
}

/// The value of an item; null where it is too large to be one that all ranks have in common.
Result<ValuePtr> read_common_value(Io& io, const std::string& root, const Map& map, std::uint32_t tensor) {
  const Shape& shape = map.tensors[tensor].shape;
  const std::uint64_t bytes = shape.empty() ? 0 : shape.front();
  if (bytes == 0 || bytes > kMostCommonBytes || map.compressed) return ValuePtr{};
  std::optional<Locator> where;
  CKPT_CHECK(map.index->chunks(tensor, {0, bytes}, [&](const PlacedChunk& chunk) -> Result<> {
    where = chunk.where;
    return {};
  }));
  if (!where) return ValuePtr{};
  const std::string path = join_path(root, map.files[where->file].path);
  return read_item(io, path, {where->offset, where->offset + bytes});
}

/// The state that all ranks have in common, where it is an item. The item stays a blob, too.
Result<> read_common_item(Io& io, const std::string& root, Map& map) {
  const auto found = std::ranges::find(map.tensors, megatron::kCommonItem, &Tensor::name);
  if (found == map.tensors.end() || found->role != Role::blob) return {};
  CKPT_TRY(const ValuePtr common,
           read_common_value(io, root, map, static_cast<std::uint32_t>(found - map.tensors.begin())));
  if (common == nullptr || !std::holds_alternative<Dict>(common->v)) return {};
  megatron::read_run_arguments(*common, map.meta);
  megatron::add_objects({}, common, map);
  return {};
}

/// Buckets of the optimizer become state of the weights, and what their items hold objects.
Result<> resolve_buckets(Io& io, const std::string& root, Map& map) {
  std::vector<std::pair<Path, ValuePtr>> values;
  for (const megatron::BucketItem& item : megatron::bucket_items(map)) {
    CKPT_TRY(ValuePtr value, read_common_value(io, root, map, item.tensor));
    values.emplace_back(item.path, std::move(value));
  }
  CKPT_TRY(const bool is_resolved, megatron::assign_buckets(map));
  if (!is_resolved) return {};
  for (const auto& [path, value] : values)
    if (value != nullptr) megatron::add_objects(path, value, map);
  return {};
}

/// The same in a file of its own, which is a part of the checkpoint.
Result<> join_common_file(Io& io, const std::string& root, const ReadOptions& options, Map& map) {
  CKPT_TRY(Map common, torch_format().reader->open(io, join_path(root, megatron::kCommonFile), options));
  for (Tensor& tensor : common.tensors) {
    if (tensor.role == Role::blob) tensor.name = fmt::format("{}/{}", megatron::kCommonFile, tensor.name);
    // torch's Adam counts its steps for each weight, and all have the same: optimizer.param_state.<number>.step, or
    // without the distributed optimizer optimizer.optimizer.state.common_step.
    const bool is_step = tensor.slot.ends_with(".step") || tensor.name.ends_with(".common_step");
    if (tensor.role == Role::slot && tensor.shape.empty() && is_step) tensor.slot = "step";
  }
  Dict top;
  for (const NamedObject& object : common.objects)
    top.items.emplace_back(std::make_shared<Value>(Value{object.name}), std::make_shared<Value>(object.value));
  megatron::read_run_arguments(Value{std::move(top)}, map.meta);
  return join_maps(map, std::move(common), std::string(megatron::kCommonFile), root);
}

/// megatron-core before 0.19 wrote the file, and that into metadata.json.
Result<> needs_no_common_file(Io& io, const std::string& root, Layout layout) {
  if (layout != Layout::torch_dist && layout != Layout::zarr) return {};
  CKPT_TRY(const std::string text, read_small_file(io, join_path(root, "metadata.json"), kMostCommonBytes));
  if (text.find("\"common_backend\"") == std::string::npos) return {};
  const std::string path = join_path(root, megatron::kCommonFile);
  return fail({.code = Errc::incomplete,
               .message = path + ": missing, but metadata.json says that the run's arguments are in it",
               .file = path,
               .hint = "rank 0 wrote it: copy it from its node"});
}

/// How far a run of Megatron-Bridge is: the counters of its loop, as tensors of one element.
Result<> join_train_state(Io& io, const std::string& root, const ReadOptions& options, Map& map) {
  CKPT_TRY(Map state, torch_format().reader->open(io, join_path(root, kTrainState), options));
  for (Tensor& tensor : state.tensors) {
    tensor.name = fmt::format("train_state.{}", tensor.name);
    tensor.path.clear();
    if (tensor.role != Role::blob) tensor.role = Role::slot;
    tensor.slot = tensor.role == Role::slot ? "train_state" : "";
  }
  return join_maps(map, std::move(state), std::string(kTrainState), root);
}

/// What Megatron-Bridge keeps instead of the arguments. A file that is not one is left alone, as an extra.
Result<> read_run_config(Io& io, const std::string& root, Map& map) {
  if (std::ranges::any_of(map.objects, [](const NamedObject& object) { return object.name == kArguments; })) return {};
  CKPT_TRY(const std::string text, read_small_file(io, join_path(root, kRunConfig), kMostConfigBytes));
  const auto document = parse_yaml(text);
  const auto arguments = document ? megatron::arguments_of(*document) : std::nullopt;
  if (!arguments) return {};
  Dict common;
  common.items.emplace_back(std::make_shared<Value>(Value{std::string(kArguments)}),
                            std::make_shared<Value>(*arguments));
  megatron::read_run_arguments(Value{std::move(common)}, map.meta);
  map.objects.push_back({.name = std::string(kArguments), .value = *arguments});
  Hasher identity;
  identity.update(map.metadata_hash);
  identity.update(text);
  map.metadata_hash = identity.digest().hex();
  return {};
}

/// The tensors, in whatever form the iteration has them.
Result<Map> open_tensors(Io& io, const std::string& root, const std::vector<DirEntry>& entries, Layout layout,
                         const ReadOptions& options) {
  const auto named = [](Map map, std::string_view form) {
    map.variant = fmt::format("{}, {}", form, map.variant);
    return map;
  };
  if (layout == Layout::zarr) {
    CKPT_TRY(Map map, megatron::open_zarr(io, root));
    return named(std::move(map), "zarr");
  }
  if (layout == Layout::none) {
    CKPT_TRY(const auto local,
             megatron::find_local_files({.io = io, .root = root, .directory = true, .entries = entries}));
    if (local) {
      CKPT_TRY(Map map, megatron::open_local_files(io, root, *local));
      return named(std::move(map), "local");
    }
  }
  CKPT_TRY(Map map, dcp_format().reader->open(io, root, options));
  return named(std::move(map), layout == Layout::torch_dist ? "torch_dist" : "torch_dcp");
}

Result<Map> open_torch_dist(Io& io, const std::string& root, const ReadOptions& options) {
  CKPT_TRY(const std::vector<DirEntry> entries, io.list(root));
  const auto has = [&](std::string_view name) {
    return std::ranges::find(entries, name, &DirEntry::name) != entries.end();
  };
  if (has(megatron::kTracker)) CKPT_CHECK(megatron::tracked_iteration(io, root));  // it leads nowhere
  CKPT_TRY(const Layout layout, megatron::layout_of({.io = io, .root = root, .directory = true, .entries = entries}));
  if (layout == Layout::other)
    return fail({.code = Errc::unsupported,
                 .message = root + ": metadata.json names a back end that is not known",
                 .file = join_path(root, "metadata.json"),
                 .hint = "save it once with --ckpt-format torch_dist"});
  CKPT_TRY(Map map, open_tensors(io, root, entries, layout, options));
  map.format = "megatron";
  map.meta.framework = "megatron";
  assign_slots(map.tensors);
  if (has(megatron::kCommonFile)) {
    CKPT_CHECK(join_common_file(io, root, options, map));
  } else {
    CKPT_CHECK(needs_no_common_file(io, root, layout));
    CKPT_CHECK(read_common_item(io, root, map));
  }
  if (has(kRunConfig)) CKPT_CHECK(read_run_config(io, root, map));
  if (has(kTrainState)) CKPT_CHECK(join_train_state(io, root, options, map));
  CKPT_CHECK(resolve_buckets(io, root, map));
  CKPT_CHECK(megatron::unflatten_state(map, layout == Layout::zarr));
  note_forms(map);
  megatron::note_renamed(root, map);
  return map;
}

}  // namespace

Format megatron_format() {
  return {.name = "megatron",
          .summary = "Megatron-LM's torch_dist: .metadata, metadata.json and .distcp files",
          .detect = detect_torch_dist,
          .own_names = kOwnNames,
          .has_folders = true,
          .names = {.steps = kSteps, .trackers = kTrackers, .markers = kMarkers},
          .reader = FormatReader{.open = open_torch_dist},
          .writer = FormatWriter{.lay_out = megatron::lay_out,
                                 .fits = megatron::fits,
                                 .options = megatron::kTargetOptions,
                                 .for_trainers = true,
                                 .reads_steps = true,
                                 .holds_blobs = true,
                                 .tensor_memory = 3500},
          .digests = megatron::stated_digests};
}

}  // namespace ckpt
