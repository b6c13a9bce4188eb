#include "convert/megatron/run_config.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "convert/megatron/dict_members.hpp"
#include "convert/megatron/run_arguments.hpp"
#include "convert/model_arguments.hpp"
#include "format/model/object_tree.hpp"

namespace ckpt::megatron {
namespace {

/// What the configuration of a model calls otherwise than the arguments.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kRenamed{
    {{"gated_linear_unit", "swiglu"},
     {"num_moe_experts", "num_experts"},
     {"seq_length", "max_position_embeddings"},
     {"layernorm_zero_centered_gamma", "apply_layernorm_1p"}}};
constexpr std::string_view kShared = "share_embeddings_and_output_weights";

bool is_setting(const Value& value) {
  return !std::holds_alternative<Dict>(value.v) && !std::holds_alternative<Opaque>(value.v);
}

ValuePtr made(bool value) {
  return std::make_shared<const Value>(Value{value});
}

}  // namespace

std::optional<Value> arguments_of(const Value& document) {
  const Value* model = member(document, "model");
  const auto* settings = model == nullptr ? nullptr : std::get_if<Dict>(&model->v);
  if (settings == nullptr || !count_argument(*model, "num_layers")) return std::nullopt;
  Dict out;
  for (const auto& [key, value] : settings->items) {
    const std::string* name = text_of(key.get());
    if (name == nullptr || value == nullptr || !is_setting(*value) || name->starts_with('_')) continue;
    const auto* const renamed =
        std::ranges::find(kRenamed, *name, &std::pair<std::string_view, std::string_view>::first);
    set(out, renamed == kRenamed.end() ? std::string_view(*name) : renamed->second, value);
  }
  if (const auto shared = truth(member(*model, kShared)))
    set(out, "untie_embeddings_and_output_weights", made(!*shared));
  if (get(out, "transformer_impl") == nullptr)
    set(out, "transformer_impl", std::make_shared<const Value>(Value{std::string("transformer_engine")}));
  set(out, "use_distributed_optimizer", made(true));
  return as_namespace(std::move(out));
}

}  // namespace ckpt::megatron
