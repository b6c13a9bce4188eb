#include "convert/megatron/run_arguments.hpp"

#include <array>
#include <utility>

#include "format/model/object_tree.hpp"

namespace ckpt::megatron {
namespace {

std::optional<std::uint64_t> count(const Value* value) {
  const auto* number = value == nullptr ? nullptr : std::get_if<std::int64_t>(&value->v);
  if (number == nullptr || *number < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

}  // namespace

const Value* member(const Value& value, std::string_view key) {
  const Value* holder = &value;
  if (const auto* object = std::get_if<Opaque>(&value.v)) holder = object->state.get();
  const auto* dict = holder == nullptr ? nullptr : std::get_if<Dict>(&holder->v);
  if (dict == nullptr) return nullptr;
  for (const auto& [name, item] : dict->items) {
    const auto* text = name == nullptr ? nullptr : std::get_if<std::string>(&name->v);
    if (text != nullptr && *text == key) return item.get();
  }
  return nullptr;
}

std::optional<std::uint64_t> count_argument(const Value& args, std::string_view name) {
  const auto number = count(member(args, name));
  return number == 0 ? std::nullopt : number;
}

bool is_set(const Value& args, std::string_view name) {
  return truth(member(args, name)).value_or(false);
}

bool has_gated_layers(const Value& args) {
  return is_set(args, "swiglu") || is_set(args, "quick_geglu");
}

bool has_transposed_experts(const Value& args) {
  const std::string* implementation = text_of(member(args, "transformer_impl"));
  const bool is_local = implementation != nullptr && *implementation == "local";
  return is_set(args, "moe_grouped_gemm") && (is_local || is_set(args, "moe_use_legacy_grouped_gemm"));
}

bool has_numbered_layers(const Value& args) {
  for (const std::string_view name : {"moe_layer_freq", "linear_attention_freq"}) {
    const Value* frequency = member(args, name);
    if (frequency != nullptr && std::holds_alternative<List>(frequency->v)) return true;
    if (count_argument(args, name).value_or(1) > 1) return true;
  }
  const auto has_text = [&](std::string_view name) { return text_of(member(args, name)) != nullptr; };
  return has_text("heterogeneous_layers_config_path") || has_text("heterogeneous_layers_config_encoded_json") ||
         has_text("hybrid_override_pattern");
}

void read_run_arguments(const Value& common, Meta& meta) {
  if (const auto step = count(member(common, "iteration"))) meta.step = step;
  const Value* args = member(common, "args");
  if (args == nullptr) return;
  if (const auto world = count(member(*args, "world_size"))) meta.world_size = world;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kAxes{{{"dp", "data_parallel_size"},
                                                                                {"tp", "tensor_model_parallel_size"},
                                                                                {"pp", "pipeline_model_parallel_size"},
                                                                                {"cp", "context_parallel_size"},
                                                                                {"ep", "expert_model_parallel_size"}}};
  meta.mesh.clear();
  for (const auto& [axis, name] : kAxes) {
    const auto size = count(member(*args, name));
    if (size && (*size > 1 || axis == "dp")) meta.mesh.emplace_back(axis, *size);
  }
}

}  // namespace ckpt::megatron
