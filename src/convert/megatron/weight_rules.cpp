#include "convert/megatron/weight_rules.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "format/text/parse_number.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::string_view kLocalExperts = ".experts.local_experts.";
constexpr std::string_view kGroupedExperts = ".experts.linear_fc";
constexpr std::string_view kExperts = ".experts.experts.";

struct Rule {
  std::string_view end;  ///< of a name
  Cut cut = Cut::none;
};
constexpr std::array kRules{Rule{"word_embeddings.weight", Cut::columns},
                            Rule{"output_layer.weight", Cut::columns},
                            Rule{"output_layer.bias", Cut::columns},
                            Rule{"linear_qkv.weight", Cut::columns},
                            Rule{"linear_qkv.bias", Cut::columns},
                            Rule{"linear_fc1.weight", Cut::columns},
                            Rule{"linear_fc1.bias", Cut::columns},
                            Rule{"linear_q_proj.weight", Cut::columns},
                            Rule{"linear_q_up_proj.weight", Cut::columns},
                            Rule{"linear_kv_up_proj.weight", Cut::columns},
                            Rule{"eh_proj.weight", Cut::columns},
                            Rule{"linear_proj.weight", Cut::rows},
                            Rule{"linear_fc2.weight", Cut::rows},
                            Rule{"linear_proj.bias", Cut::none},
                            Rule{"linear_fc2.bias", Cut::none},
                            Rule{"position_embeddings.weight", Cut::none},
                            Rule{"router.weight", Cut::none},
                            Rule{"router.bias", Cut::none},
                            Rule{"router.expert_bias", Cut::none},
                            Rule{"shared_experts.gate_weight", Cut::none},
                            Rule{"layernorm.weight", Cut::none},
                            Rule{"layernorm.bias", Cut::none},
                            Rule{".enorm.weight", Cut::none},
                            Rule{".enorm.bias", Cut::none},
                            Rule{".hnorm.weight", Cut::none},
                            Rule{".hnorm.bias", Cut::none},
                            Rule{"layer_norm_weight", Cut::none},
                            Rule{"layer_norm_bias", Cut::none}};

Cut cut_of(std::string_view name) {
  const auto rule = std::ranges::find_if(kRules, [&](const Rule& one) { return name.ends_with(one.end); });
  return rule == kRules.end() ? Cut::unknown : rule->cut;
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  if (const std::size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
}

constexpr std::uint64_t kMostNumbered = std::uint64_t{1} << 20;  // layers or experts; what follows is counted by it

/// Takes "NUMBER." out of the text at a position.
std::optional<std::uint64_t> take_index(std::string& text, std::size_t at) {
  std::string_view rest = std::string_view(text).substr(at);
  const auto number = take_number<std::uint64_t>(rest);
  if (!number || *number >= kMostNumbered || !rest.starts_with('.')) return std::nullopt;
  text.erase(at, text.size() - at - rest.size() + 1);
  return number;
}

/// "...experts.linear_fc1.weight3" of grouped experts: the number at its end.
std::optional<std::uint64_t> take_last_index(std::string& text) {
  const std::size_t digits = text.find_last_not_of("0123456789") + 1;
  const auto number = parse_number<std::uint64_t>(std::string_view(text).substr(digits));
  if (!number || *number >= kMostNumbered) return std::nullopt;
  text.erase(digits);
  return number;
}

}  // namespace

Weight weight_of(std::string_view name, bool is_local) {
  Weight out{.name = std::string(name)};
  if (name.starts_with(kLayers)) out.layer = take_index(out.name, kLayers.size());
  if (const std::size_t at = out.name.find(kLocalExperts); at != std::string::npos) {
    out.expert = take_index(out.name, at + kLocalExperts.size());
    replace(out.name, kLocalExperts, kExperts);
  } else if (out.name.find(kGroupedExperts) != std::string::npos) {
    out.expert = take_last_index(out.name);
    if (out.expert) replace(out.name, ".experts.", kExperts);
  }
  if (name.starts_with(kPredictionLayers)) replace(out.name, "mtp_model_layer.", kPredictedLayer);
  if (is_local) {
    replace(out.name, ".input_layernorm.", ".self_attention.linear_qkv.layer_norm_");
    replace(out.name, ".pre_mlp_layernorm.", ".mlp.linear_fc1.layer_norm_");
  }
  out.cut = cut_of(out.name);
  out.is_gated = out.name.ends_with("linear_fc1.weight") || out.name.ends_with("linear_fc1.bias");
  return out;
}

std::string_view copied_embedding(bool is_tied, bool has_prediction) {
  if (has_prediction) return kEmbedding;
  return is_tied ? kOutput : std::string_view{};
}

bool contradicts_gate(std::uint64_t rows, std::uint64_t inner, bool is_gated) {
  return is_gated ? rows == inner : rows % 2 == 0 && rows / 2 == inner;
}

}  // namespace ckpt::megatron
