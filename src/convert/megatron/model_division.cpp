#include "convert/megatron/model_division.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <compare>
#include <string_view>

#include "convert/megatron/run_arguments.hpp"
#include "format/checked.hpp"
#include "format/model/object_tree.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::uint64_t kMostPadding = std::uint64_t{1} << 24;  // rows of the vocabulary
constexpr std::uint64_t kMostWeights = std::uint64_t{1} << 20;  // of all layers and experts
constexpr std::string_view kExpertAxis = ".experts.experts.";
constexpr std::string_view kExpertModule = "mlp.experts.";
constexpr std::string_view kQkvNorm = ".self_attention.linear_qkv.layer_norm_";
constexpr std::string_view kMlpNorm = ".mlp.linear_fc1.layer_norm_";

/// The modules of a layer as they are made.
constexpr std::array<std::string_view, 20> kModules{"input_layernorm.",
                                                    "self_attention.linear_proj.",
                                                    "self_attention.linear_q_proj.",
                                                    "self_attention.linear_q_down_proj.",
                                                    "self_attention.linear_q_up_proj.",
                                                    "self_attention.linear_kv_down_proj.",
                                                    "self_attention.linear_kv_up_proj.",
                                                    "self_attention.linear_qkv.",
                                                    "self_attention.q_layernorm.",
                                                    "self_attention.k_layernorm.",
                                                    "self_attention.kv_layernorm.",
                                                    "pre_mlp_layernorm.",
                                                    "mlp.router.",
                                                    "mlp.linear_fc1.",
                                                    "mlp.linear_fc2.",
                                                    kExpertModule,
                                                    "mlp.shared_experts.gate_weight",
                                                    "mlp.shared_experts.linear_fc1.",
                                                    "mlp.shared_experts.linear_fc2.",
                                                    "post_mlp_layernorm."};
constexpr std::array<std::string_view, 5> kInModule{"layer_norm_weight", "layer_norm_bias", "weight", "bias",
                                                    "expert_bias"};

/// Those of a multi-token prediction layer.
constexpr std::array<std::string_view, 5> kPredictionModules{"enorm.", "hnorm.", "eh_proj.", kPredictedLayer,
                                                             "final_layernorm."};

/// The parts of the model in their order, and the weights before the layers, behind them, and at the end.
enum Section : std::uint8_t { kBeforeLayers, kInLayers, kBehindLayers, kInPrediction, kAtEnd };
constexpr std::array<std::string_view, 2> kBefore{kEmbedding, "embedding.position_embeddings.weight"};
constexpr std::array<std::string_view, 2> kBehind{"decoder.final_layernorm.weight", "decoder.final_layernorm.bias"};
constexpr std::array<std::string_view, 2> kEnd{kOutput, "output_layer.bias"};

template <std::size_t N>
std::size_t find_in(const std::array<std::string_view, N>& all, std::string_view one) {
  return static_cast<std::size_t>(std::ranges::find(all, one) - all.begin());
}

bool is_vocabulary(std::string_view name) {
  return name == kEmbedding || name.starts_with("output_layer.");
}

void replace_norm(std::string& name, std::string_view from, std::string_view to) {
  if (const std::size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
}

/// The largest number of tensor-parallel ranks below `ranks` that divides a dimension.
std::string nearest_size(std::string_view option, std::uint64_t elements, std::uint64_t halves, std::uint64_t ranks) {
  while (--ranks > 1)
    if (elements % (halves * ranks) == 0) break;
  return fmt::format("{} {}", option, std::max<std::uint64_t>(ranks, 1));
}

}  // namespace

/// A rank's weight with its place in the module.
struct ModelDivision::Ordered {
  std::array<std::uint64_t, 7> place{};  // section, layer, outer module, module, of two kinds of experts, member
  RankWeight weight;
};

ModelForm model_form(const Value& args) {
  const std::string* implementation = text_of(member(args, "transformer_impl"));
  const auto inner = count_argument(args, "ffn_hidden_size");
  const auto of_expert = count_argument(args, "moe_ffn_hidden_size");
  const std::string* tokenizer = text_of(member(args, "tokenizer_type"));
  auto vocabulary = count_argument(args, "vocab_size");
  if (vocabulary && tokenizer != nullptr && *tokenizer == "NullTokenizer") ++*vocabulary;  // see model_arguments()
  return {.is_local = implementation != nullptr && *implementation == "local",
          .is_grouped = is_set(args, "moe_grouped_gemm"),
          .is_transposed = has_transposed_experts(args),
          .is_gated = has_gated_layers(args),
          .is_tied = !is_set(args, "untie_embeddings_and_output_weights"),
          .has_prediction = count_argument(args, "mtp_num_layers").value_or(0) != 0,
          .vocabulary = vocabulary,
          .vocabulary_multiple = count_argument(args, "make_vocab_size_divisible_by").value_or(1),
          .heads = count_argument(args, "num_attention_heads"),
          .feed_forward = inner,
          .expert_feed_forward = of_expert ? of_expert : inner};
}

std::uint64_t count_layers(const std::vector<WholeWeight>& weights) {
  std::uint64_t out = 0;
  for (const WholeWeight& weight : weights) {
    if (!weight.name.starts_with(kLayers)) continue;
    const Weight one = weight_of(weight.name, false);
    if (one.layer) out = std::max(out, *one.layer + 1);
    if (!one.layer && !weight.shape.empty()) out = std::max(out, weight.shape.front());
  }
  return out;
}

Result<ModelDivision> ModelDivision::make(std::vector<WholeWeight> weights, const ModelForm& form, const RankGrid& grid,
                                          const std::string& target) {
  ModelDivision out(std::move(weights), form, grid);
  CKPT_CHECK(out.divide(target));
  return out;
}

Result<> ModelDivision::divide(const std::string& target) {
  if (form_.heads && *form_.heads % grid_.tensor != 0)
    return fail({.code = Errc::unsupported,
                 .message = fmt::format("{}: {} attention heads cannot be divided among {} tensor-parallel ranks",
                                        target, *form_.heads, grid_.tensor),
                 .hint = nearest_size("--tp", *form_.heads, 1, grid_.tensor)});
  divided_.resize(weights_.size());
  for (std::size_t i = 0; i < weights_.size(); ++i) CKPT_CHECK(check(weights_[i], divided_[i], target));
  return check_count(target);
}

/// Shapes may claim any number of layers and experts, also without elements.
Result<> ModelDivision::check_count(const std::string& target) const {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const std::uint64_t layers = std::max<std::uint64_t>(divided_[i].layers, 1);
    const std::uint64_t experts = divided_[i].is_expert ? std::max<std::uint64_t>(experts_, 1) : 1;
    const bool fits = layers <= kMostWeights && experts <= kMostWeights && layers * experts <= kMostWeights - count;
    if (!fits)
      return fail({.code = Errc::unsupported,
                   .message = fmt::format("{}: {}: too many layers and experts", target, weights_[i].name),
                   .tensor = weights_[i].name});
    count += layers * experts;
  }
  return {};
}

Result<> ModelDivision::check(const WholeWeight& whole, Divided& out, const std::string& target) {
  const auto refuse = [&](const std::string& reason, std::string hint) {
    return fail({.code = Errc::unsupported,
                 .message = fmt::format("{}: {}: {}", target, whole.name, reason),
                 .tensor = whole.name,
                 .hint = std::move(hint)});
  };
  out.weight = weight_of(whole.name, false);
  out.shape = whole.shape;
  const std::uint64_t layers = grid_.first_layer.back();
  const bool is_layer = whole.name.starts_with(kLayers);
  out.is_expert = whole.name.find(kExpertAxis) != std::string::npos;
  const std::size_t axes =
      static_cast<std::size_t>(is_layer && !out.weight.layer) + static_cast<std::size_t>(out.is_expert);
  if (whole.shape.size() < axes) return refuse("it has too few dimensions", {});
  if (is_layer && !out.weight.layer) {
    out.layers = whole.shape.front();
    out.shape.erase(out.shape.begin());
    if (out.layers != layers) return refuse(fmt::format("it has {} layers, others {}", out.layers, layers), {});
  }
  if (out.is_expert) {
    if (form_.is_transposed)
      return refuse("GroupedMLP (--moe-grouped-gemm without Transformer Engine) holds experts transposed",
                    "--to megatron    stores whole experts");
    const std::uint64_t experts = out.shape.front();
    out.shape.erase(out.shape.begin());
    if (experts % grid_.expert != 0)
      return refuse(fmt::format("its {} experts cannot be divided among {} ranks", experts, grid_.expert), "--ep 1");
    if (experts_ != 0 && experts != experts_)
      return refuse(fmt::format("it has {} experts, others {}", experts, experts_), {});
    experts_ = experts;
  }
  out.part = out.shape;
  const std::uint64_t ranks = out.is_expert ? grid_.expert_tensor : grid_.tensor;
  const std::string_view option = out.is_expert && ranks != grid_.tensor ? "--etp" : "--tp";
  if (is_vocabulary(whole.name) && !out.shape.empty()) {
    std::uint64_t rows = out.shape.front();
    if (form_.vocabulary && *form_.vocabulary <= rows) {
      CKPT_TRY(const std::uint64_t multiple, checked_mul(form_.vocabulary_multiple, ranks));
      if (multiple > kMostPadding)
        return refuse(fmt::format("make_vocab_size_divisible_by {} is too large", form_.vocabulary_multiple), {});
      rows = round_up(*form_.vocabulary, multiple);
    }
    rows_ = rows;
    out.part.front() = rows;
  }
  const bool is_shared = whole.name.find("shared_experts.") != std::string::npos;
  const auto inner = out.is_expert ? form_.expert_feed_forward : form_.feed_forward;
  if (out.weight.is_gated && !is_shared && inner && !out.shape.empty() &&
      contradicts_gate(out.shape.front(), *inner, form_.is_gated))
    return refuse(fmt::format("it has {} rows, but the run's arguments say {} and swiglu {}", out.shape.front(), *inner,
                              form_.is_gated ? "True" : "False"),
                  {});
  const std::uint64_t halves = out.weight.is_gated && form_.is_gated ? 2 : 1;
  if (out.weight.cut == Cut::unknown && ranks > 1)
    return refuse("cannot tell how tensor-parallel ranks split it", fmt::format("{} 1", option));
  if (out.weight.cut == Cut::columns) {
    if (out.part.empty() || out.part.front() % (halves * ranks) != 0)
      return refuse(fmt::format("cannot split its {} rows over {} tensor-parallel ranks",
                                out.part.empty() ? 0 : out.part.front(), ranks),
                    nearest_size(option, out.part.empty() ? 0 : out.part.front(), halves, ranks));
    out.part.front() /= ranks;
  }
  if (out.weight.cut == Cut::rows) {
    if (out.part.size() < 2 || out.part[1] % ranks != 0)
      return refuse(fmt::format("cannot split its {} columns over {} tensor-parallel ranks",
                                out.part.size() < 2 ? 0 : out.part[1], ranks),
                    nearest_size(option, out.part.size() < 2 ? 0 : out.part[1], 1, ranks));
    out.part[1] /= ranks;
  }
  bool is_known = find_in(kBefore, whole.name) < kBefore.size() || find_in(kBehind, whole.name) < kBehind.size() ||
                  find_in(kEnd, whole.name) < kEnd.size();
  if (is_layer || whole.name.starts_with(kPredictionLayers)) {
    if (form_.is_local) {
      replace_norm(out.weight.name, kQkvNorm, ".input_layernorm.");
      replace_norm(out.weight.name, kMlpNorm, ".pre_mlp_layernorm.");
    }
    is_known = order(out.weight.name, out);
  } else if (!is_known) {
    const std::size_t at =
        std::min({whole.name.find("decoder."), whole.name.find("embedding."), whole.name.find(kOutput)});
    const bool has_prefix = at != std::string::npos && at != 0;
    return refuse("cannot tell which pipeline stage it belongs to",
                  has_prefix ? "--strip-prefix " + whole.name.substr(0, at) : "--to megatron    needs no stages");
  }
  if (!is_known && whole.is_trained) unordered_ = whole.name;
  return {};
}

/// Finds the place of a layer's weight among the others; false: it is not known.
bool ModelDivision::order(std::string_view name, Divided& out) {
  const auto find_module = [&](const auto& modules) {
    const auto* const found =
        std::ranges::find_if(modules, [&](std::string_view one) { return name.starts_with(one); });
    return static_cast<std::size_t>(found - modules.begin());
  };
  out.member = find_in(kInModule, name.substr(name.rfind('.') + 1));
  const bool is_member = out.member < kInModule.size() || name.ends_with("gate_weight");
  if (name.starts_with(kLayers)) {
    name.remove_prefix(kLayers.size());
  } else {
    name.remove_prefix(kPredictionLayers.size());
    const auto number = take_number<std::uint64_t>(name);
    if (!number || !name.starts_with('.')) return false;
    name.remove_prefix(1);
    out.prediction = *number;
    out.outer = find_module(kPredictionModules);
    if (!name.starts_with(kPredictedLayer)) return is_member && out.outer < kPredictionModules.size();
    name.remove_prefix(kPredictedLayer.size());
  }
  out.module = find_module(kModules);
  return is_member && out.module < kModules.size();
}

RankWeight ModelDivision::part(std::size_t number, const RankPlace& place, std::uint64_t layer,
                               std::uint64_t expert) const {
  const Divided& own = divided_[number];
  const std::uint64_t own_part = grid_.stage().part(place.tensor, own.is_expert);
  RankWeight out{.whole = number, .shape = own.part};
  Box box{.offset = {}, .size = {}};
  const auto fix = [&](std::uint64_t index) {
    box.offset.push_back(index);
    box.size.push_back(1);
  };
  if (own.layers != 0) fix(layer);
  if (own.is_expert) fix(expert);
  const std::size_t first = box.size.size();
  box.offset.resize(first + own.shape.size(), 0);
  box.size.insert(box.size.end(), own.part.begin(), own.part.end());
  if (own.weight.cut == Cut::rows) box.offset[first + 1] = own_part * own.part[1];
  if (own.weight.cut != Cut::columns) {
    if (!own.shape.empty()) box.size[first] = std::min(own.part.front(), own.shape.front());
    out.boxes.push_back(std::move(box));
    return out;
  }
  const std::uint64_t halves = own.weight.is_gated && form_.is_gated ? 2 : 1;
  const std::uint64_t rows = own.part.front() / halves;
  for (std::uint64_t half = 0; half < halves; ++half) {
    const std::uint64_t begin = half * (own.shape.front() / halves) + own_part * rows;
    if (begin >= own.shape.front()) break;  // padding
    box.offset[first] = begin;
    box.size[first] = std::min(rows, own.shape.front() - begin);
    out.boxes.push_back(box);
  }
  return out;
}

void ModelDivision::add(std::size_t number, const RankPlace& place, std::uint64_t layer, std::uint64_t first_layer,
                        std::vector<Ordered>& out) const {
  const Divided& own = divided_[number];
  std::string name = own.weight.name;
  std::array<std::uint64_t, 4> module{kInPrediction, own.prediction, own.outer, own.module};
  if (name.starts_with(kLayers)) {
    module = {kInLayers, layer, 0, own.module};
    name.insert(kLayers.size(), fmt::format("{}.", layer - first_layer));
  }
  const auto add_one = [&](std::string as, std::uint64_t expert, std::uint64_t first, std::uint64_t second) {
    Ordered& one = out.emplace_back();
    one.place = {module[0], module[1], module[2], module[3], first, second, own.member};
    one.weight = part(number, place, layer, expert);
    one.weight.name = std::move(as);
    one.weight.is_expert = own.is_expert;
  };
  if (!own.is_expert) return add_one(std::move(name), 0, 0, 0);
  const std::size_t at = name.find(kExpertAxis);
  const std::string before = name.substr(0, at);
  const std::string inner = name.substr(at + kExpertAxis.size());  // linear_fc1.weight
  const std::uint64_t which = inner.starts_with("linear_fc1.") ? 0 : 1;
  const std::uint64_t count = experts_ / grid_.expert;
  for (std::uint64_t e = 0; e < count; ++e) {
    const std::uint64_t expert = place.expert * count + e;
    if (form_.is_grouped) {
      add_one(fmt::format("{}.experts.{}{}", before, inner, e), expert, which, e);
    } else {
      add_one(fmt::format("{}.experts.local_experts.{}.{}", before, e, inner), expert, e, which);
    }
  }
}

std::vector<RankWeight> ModelDivision::chunk(const RankPlace& place, std::uint64_t chunk) const {
  const std::uint64_t first = grid_.first(chunk, place.pipeline);
  const std::uint64_t end = grid_.end(chunk, place.pipeline);
  const bool is_begin = place.pipeline == 0 && chunk == 0;
  const bool is_end = place.pipeline + 1 == grid_.pipeline && chunk + 1 == grid_.chunks;
  const std::string_view copy = grid_.pipeline > 1 ? copied_embedding(form_.is_tied, form_.has_prediction) : "";
  std::vector<Ordered> found;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const std::string& name = weights_[i].name;
    const Weight& weight = divided_[i].weight;
    if (name.starts_with(kLayers)) {
      for (std::uint64_t layer = first; layer < end; ++layer)
        if (!weight.layer || *weight.layer == layer) add(i, place, layer, first, found);
      continue;
    }
    if (name.starts_with(kPredictionLayers)) {
      if (is_end) add(i, place, 0, 0, found);
      continue;
    }
    const auto add_one = [&](Section section, std::uint64_t position, std::string_view as, bool is_shared) {
      Ordered& one = found.emplace_back();
      one.place = {section, 0, 0, 0, 0, 0, position};
      one.weight = part(i, place, 0, 0);
      one.weight.name = as;
      one.weight.is_shared = is_shared;
    };
    const std::size_t before = find_in(kBefore, name);
    const std::size_t behind = find_in(kBehind, name);
    if (before < kBefore.size() && is_begin) add_one(kBeforeLayers, before, name, name == kEmbedding && !copy.empty());
    if (name == kEmbedding && is_end && copy == kEmbedding) add_one(kBeforeLayers, before, kEmbedding, true);
    if (name == kEmbedding && is_end && form_.is_tied && grid_.pipeline > 1)
      add_one(kAtEnd, find_in(kEnd, kOutput), kOutput, copy == kOutput);
    if (before < kBefore.size() || !is_end) continue;
    if (behind < kBehind.size()) add_one(kBehindLayers, behind, name, false);
    if (behind == kBehind.size()) add_one(kAtEnd, find_in(kEnd, name), name, false);
  }
  std::ranges::stable_sort(found, {}, &Ordered::place);
  std::vector<RankWeight> out;
  out.reserve(found.size());
  for (Ordered& one : found) out.push_back(std::move(one.weight));
  return out;
}

}  // namespace ckpt::megatron
