#include "convert/megatron/source_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "convert/left_out.hpp"
#include "convert/megatron/weight_rules.hpp"
#include "convert/target_tensors.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::string_view kStepSlot = "step";

bool is_weight(const Tensor& tensor) {
  return tensor.role == Role::param || tensor.role == Role::buffer;
}

bool is_megatron_name(std::string_view name) {
  const std::size_t at = name.find(kLayers);
  return at != std::string_view::npos &&
         (name.find(".linear_", at) != std::string_view::npos || name.find(".mixer.", at) != std::string_view::npos);
}

/// Whether the source stores objects as items of data files.
bool has_items(const Map& map) {
  return std::ranges::any_of(std::array<std::string_view, 2>{"megatron", "dcp"},
                             [&](std::string_view format) { return map.format == format || map.origin == format; });
}

Kind kind_of(const Tensor& tensor, const Map& map, const std::unordered_map<std::string_view, const Shape*>& shapes) {
  if (is_weight(tensor)) return Kind::weight;
  if (tensor.role == Role::blob) {
    if (tensor.name.ends_with("data.pkl") || tensor.name.starts_with(kCommonFile)) return Kind::pickle;
    // Of the zarr back end each is a file, which holds the object itself and not a list of it.
    const bool is_item = tensor.name.find(kItem) != std::string::npos && !tensor.name.ends_with(".pt");
    return is_item && has_items(map) ? Kind::item : Kind::rank_bytes;
  }
  if (tensor.name.find(".gbuf_idx_") != std::string::npos) return Kind::bucket;
  if (tensor.name.ends_with(kLossScale) && is_of_megatron(map)) return Kind::common;
  if (tensor.slot == kStepSlot && is_of_megatron(map)) return Kind::step;
  // Not of several weights, nor flattened, as before megatron-core 0.15.
  const auto weight = shapes.find(tensor.parameter);
  const bool has_shape = weight == shapes.end() || *weight->second == tensor.shape;
  return is_of_megatron(map) && !tensor.parameter.empty() && tensor.slot != kStepSlot && has_shape ? Kind::state
                                                                                                   : Kind::other_state;
}

}  // namespace

std::vector<std::string> SourceState::names(Kind kind) const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (kinds[i] == kind) out.push_back(tensors[i].name);
  return out;
}

Result<SourceState> source_state(const WriteRequest& request) {
  const Map& map = *request.source;
  const TargetTensors names(request);
  SourceState out;
  out.tensors.reserve(request.tensors.size());
  for (std::size_t i = 0; i < request.tensors.size(); ++i) out.tensors.push_back(names.tensor(i));
  std::unordered_map<std::string_view, const Shape*> shapes;  // of weights, by name
  for (const Tensor& tensor : out.tensors)
    if (is_weight(tensor)) shapes.emplace(tensor.name, &tensor.shape);
  for (std::size_t i = 0; i < out.tensors.size(); ++i) {
    const Tensor& tensor = out.tensors[i];
    const Kind kind = out.kinds.emplace_back(kind_of(tensor, map, shapes));
    const auto is_item_of = [&](std::string_view key) { return kind == Kind::item && tensor.name.starts_with(key); };
    out.common.has_optimizer = out.common.has_optimizer || kind == Kind::state;
    out.common.has_buckets = out.common.has_buckets || kind == Kind::bucket;
    out.common.has_random_states = out.common.has_random_states || is_item_of("rng_state/");
    out.common.has_rerun_states = out.common.has_rerun_states || is_item_of("rerun_state_machine_state/");
    if (kind == Kind::common) out.common.tensors.push_back(map.tensors[request.tensors[i].tensor].name);
    if (kind != Kind::step || out.common.step) continue;
    const auto step = request.scalars.find(request.tensors[i].tensor);
    if (step != request.scalars.end()) out.common.step = step->second;
  }
  const bool has_names = std::ranges::any_of(shapes, [](const auto& weight) { return is_megatron_name(weight.first); });
  if (has_names || is_of_megatron(map)) return out;
  return fail({.code = Errc::unsupported,
               .message = fmt::format("{}: no weight has a name that Megatron-LM uses", request.target),
               .hint = "--names megatron    translates the names of transformers"});
}

void report_lost(const SourceState& state, const std::vector<std::string>& names, std::string_view one,
                 std::string_view many, std::vector<Finding>& out) {
  add_left_out(out, names, one, many, state.common.form(), Skipped::training_state);
}

void report_left_out(const WriteRequest& request, const SourceState& state, std::vector<Finding>& out) {
  const std::vector<std::string> other = state.names(Kind::other_state);
  report_lost(state, state.names(Kind::rank_bytes), "state of a rank", "states of ranks", out);
  report_lost(state, other, "tensor of the optimizer", "tensors of the optimizer", out);
  const std::vector<std::string> steps = state.names(Kind::step);
  std::vector<std::string> ties;
  for (const Alias& alias : request.aliases)
    if (std::ranges::find(steps, alias.target) == steps.end()) ties.push_back(alias.name);
  add_left_out(out, ties, "tied name", "tied names", state.common.form());
  if (!other.empty() && !is_of_megatron(*request.source))
    out.push_back({.text = "Megatron-LM cannot load the optimizer state of another framework"});
}

bool fits(const Map& source) {
  return is_of_megatron(source) ||
         std::ranges::any_of(source.tensors, [](const Tensor& tensor) { return is_megatron_name(tensor.name); });
}

}  // namespace ckpt::megatron
