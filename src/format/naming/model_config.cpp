#include "format/naming/model_config.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "format/checked.hpp"

namespace ckpt::naming {
namespace {

using How = ConfigLine::How;
constexpr std::uint64_t kMostLayers = std::uint64_t{1} << 16;

bool is_null(const json::Value* value) {
  return value == nullptr || std::holds_alternative<std::nullptr_t>(value->v);
}

/// A member by its dotted name.
const json::Value* member(const json::Value& config, std::string_view name) {
  const json::Value* at = &config;
  while (at != nullptr && !name.empty()) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    at = at->find(name.substr(0, dot));
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  return at;
}

/// The first of the names that has a value.
const json::Value* first_member(const json::Value& config, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const json::Value* value = member(config, name);
    if (!is_null(value)) return value;
  }
  return nullptr;
}

const json::Value* first_setting(const Settings& settings, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (const json::Value* value = settings.find(name)) return value;
  }
  return nullptr;
}

/// What a line gives where the value is missing.
std::optional<json::Value> default_of(const ConfigLine& line, const Settings& settings) {
  if (line.otherwise.empty()) return std::nullopt;
  if (auto literal = json::parse(line.otherwise)) return *std::move(literal);
  if (const auto value = evaluate(line.otherwise, settings)) return json::Value{*value};
  return std::nullopt;
}

/// A constant that is false or null holds where the value is missing.
bool fits(const json::Value* value, const json::Value& constant) {
  if (!is_null(value)) return is_equal(*value, constant);
  return is_null(&constant) || (constant.boolean() != nullptr && !*constant.boolean());
}

json::Value negated(const json::Value& value) {
  return value.boolean() != nullptr ? json::Value{!*value.boolean()} : value;
}

/// moe_layer_freq as a list: Megatron-LM reads N as "every N-th layer, from the first on".
void spread_expert_layers(Settings& settings) {
  const auto layers = settings.count("num_layers");
  if (!settings.is_set("num_experts") || !layers || *layers > kMostLayers) return;
  if (settings.counts("moe_layer_freq")) return;
  const std::uint64_t every = std::max<std::uint64_t>(settings.count("moe_layer_freq").value_or(1), 1);
  json::Array list;
  for (std::uint64_t l = 0; l < *layers; ++l) list.push_back({std::uint64_t{l % every == 0 ? 1U : 0U}});
  settings.set("moe_layer_freq", {std::move(list)});
}

/// Numbers of groups and words that Megatron-LM derives from others.
void complete(Settings& settings) {
  if (!settings.is_set("group_query_attention") && settings.find("group_query_attention") != nullptr) {
    if (const json::Value* heads = settings.find("num_attention_heads")) settings.set("num_query_groups", *heads);
  }
  if (settings.is_set("num_experts") && settings.find("moe_ffn_hidden_size") == nullptr) {
    if (const json::Value* size = settings.find("ffn_hidden_size")) settings.set("moe_ffn_hidden_size", *size);
  }
  spread_expert_layers(settings);
}

/// How many layers come before the first one with experts; nothing if one without follows.
std::optional<std::uint64_t> leading_dense(const std::vector<std::uint64_t>& layers) {
  const auto first = std::ranges::find(layers, 1U);
  if (std::find(first, layers.end(), 0U) != layers.end()) return std::nullopt;
  return static_cast<std::uint64_t>(first - layers.begin());
}

/// N if every N-th layer has experts, the N-th first.
std::optional<std::uint64_t> sparse_step(const std::vector<std::uint64_t>& layers) {
  const auto first = std::ranges::find(layers, 1U);
  const auto step = static_cast<std::uint64_t>(first - layers.begin()) + 1;
  for (std::uint64_t l = 0; l < layers.size(); ++l) {
    if (layers[static_cast<std::size_t>(l)] != ((l + 1) % step == 0 ? 1U : 0U)) return std::nullopt;
  }
  return step;
}

json::Value list_of(std::uint64_t layers, const auto& is_sparse) {
  json::Array out;
  for (std::uint64_t l = 0; l < layers; ++l) out.push_back({std::uint64_t{is_sparse(l) ? 1U : 0U}});
  return {std::move(out)};
}

/// A value of config.json as that of the argument.
json::Value as_argument(const ConfigLine& line, const json::Value& value, const json::Value& config,
                        const Settings& settings) {
  if (line.how == How::negated) return negated(value);
  const std::uint64_t* number = value.natural();
  if (line.how == How::quotient && number != nullptr) {
    const auto product = checked_mul(*number, settings.count(line.other).value_or(0));
    return product && *product != 0 ? json::Value{*product} : json::Value{nullptr};
  }
  const std::uint64_t layers = std::min(settings.count("num_layers").value_or(0), kMostLayers);
  if (line.how == How::leading_dense && number != nullptr)
    return list_of(layers, [&](std::uint64_t l) { return l >= *number; });
  if (line.how == How::sparse_step && number != nullptr) {
    const json::Value* dense = config.find("mlp_only_layers");
    std::set<std::uint64_t> dense_layers;
    if (dense != nullptr && dense->array() != nullptr) {
      for (const json::Value& one : *dense->array())
        if (one.natural() != nullptr) dense_layers.insert(*one.natural());
    }
    return list_of(
        layers, [&](std::uint64_t l) { return *number != 0 && (l + 1) % *number == 0 && !dense_layers.contains(l); });
  }
  return value;
}

/// The numbers that Megatron-LM has in its code.
/// source  megatron/core/models/common/embeddings/rotary_pos_embedding.py: RotaryEmbedding._apply_scaling
json::Object scaling_constants() {
  return {{"high_freq_factor", {4.0}},
          {"low_freq_factor", {1.0}},
          {"original_max_position_embeddings", {std::uint64_t{8192}}},
          {"rope_type", {std::string("llama3")}}};
}

json::Value as_scaling(const json::Value& factor) {
  json::Object out = scaling_constants();
  out.insert(out.begin(), {"factor", factor});
  return {std::move(out)};
}

/// The reverse; nothing if config.json cannot say it.
std::optional<json::Value> as_config(const ConfigLine& line, const json::Value& value, const Settings& settings) {
  if (line.how == How::negated) return negated(value);
  if (line.how == How::scaling) {
    const json::Value* factor = settings.find(line.other);
    if (!is_equal(value, {true})) return json::Value{nullptr};
    return factor == nullptr ? std::nullopt : std::optional(as_scaling(*factor));
  }
  if (line.how == How::quotient) {
    const std::uint64_t by = settings.count(line.other).value_or(0);
    const std::uint64_t* number = value.natural();
    if (number == nullptr || by == 0 || *number % by != 0) return std::nullopt;
    return json::Value{*number / by};
  }
  if (line.how != How::leading_dense && line.how != How::sparse_step) return value;
  const auto layers = settings.counts(line.megatron.front());
  if (!layers) return std::nullopt;
  const auto number =
      line.how == How::leading_dense ? leading_dense(*layers) : std::optional(sparse_step(*layers).value_or(1));
  return number ? std::optional(json::Value{*number}) : std::nullopt;
}

std::string value_text(const json::Value* value) {
  return is_null(value) ? "not set" : text_of(*value);
}

void put(json::Object& object, std::string_view name, const json::Value& value) {
  const std::size_t dot = name.find('.');
  const std::string key(name.substr(0, dot));
  const auto found = std::ranges::find(object, key, [](const auto& one) { return one.first; });
  if (dot == std::string_view::npos) {
    if (found == object.end()) object.emplace_back(key, value);
    return;
  }
  if (found == object.end()) {
    json::Object below;
    put(below, name.substr(dot + 1), value);
    object.emplace_back(key, json::Value{std::move(below)});
  } else if (auto* below = std::get_if<json::Object>(&found->second.v)) {
    put(*below, name.substr(dot + 1), value);
  }
}

/// transformers 5 has the scaling in rope_parameters, earlier ones in a member of its own.
void read_scaling(const ConfigLine& line, const json::Value& config, ReadSettings& out) {
  const json::Value* scaling = first_member(config, line.hf);
  const json::Value* type = is_null(scaling) ? nullptr : scaling->find("rope_type");
  if (is_null(type) && !is_null(scaling)) type = scaling->find("type");
  const bool is_on = !is_null(type) && !is_equal(*type, {std::string("default")});
  out.settings.set(line.megatron.front(), {is_on});
  if (!is_on) return;
  const json::Value* factor = scaling->find("factor");
  const bool is_known = !is_null(factor) && std::ranges::all_of(scaling_constants(), [&](const auto& one) {
    const json::Value* value = scaling->find(one.first);
    return !is_null(value) && is_equal(*value, one.second);
  });
  if (is_known) {
    out.settings.set(line.other, *factor);
  } else {
    out.settings.set(line.megatron.front(), {false});
    out.differences.push_back(
        {line.hf.back(), text_of(*scaling) + "; the arguments have only the scaling of Llama 3.1"});
  }
}

/// Layers without experts that no step gives.
void put_dense_layers(json::Object& object, const std::optional<std::vector<std::uint64_t>>& layers) {
  if (!layers || sparse_step(*layers)) return;
  json::Array dense;
  for (std::uint64_t l = 0; l < layers->size(); ++l) {
    if ((*layers)[static_cast<std::size_t>(l)] == 0) dense.push_back({l});
  }
  put(object, "mlp_only_layers", {std::move(dense)});
}

}  // namespace

ReadSettings from_config(const Profile& profile, const json::Value& config) {
  ReadSettings out;
  for (const ConfigLine& line : profile.config) {
    if (line.how == How::hf_constant) {
      const json::Value* value = member(config, line.hf.front());
      // A key that is missing has the default of its class, which is the constant unless that is a number or a text.
      if (is_null(value) || fits(value, line.constant)) continue;
      out.differences.push_back({line.hf.front(), value_text(value) + "; the profile has " + text_of(line.constant)});
      continue;
    }
    if (line.how == How::megatron_constant) continue;
    if (line.how == How::scaling) {
      read_scaling(line, config, out);
      continue;
    }
    const json::Value* value = first_member(config, line.hf);
    if (line.how == How::derived && out.settings.find(line.megatron.front()) != nullptr) continue;
    std::optional<json::Value> argument;
    if (value != nullptr) {
      argument = as_argument(line, *value, config, out.settings);
    } else if (auto other = default_of(line, out.settings)) {
      argument = line.how == How::same || line.how == How::derived ? *std::move(other)
                                                                   : as_argument(line, *other, config, out.settings);
    }
    if (!argument) continue;
    for (const std::string& name : line.megatron) out.settings.set(name, *argument);
  }
  out.settings = to_arguments(profile, out.settings);
  return out;
}

ReadSettings from_arguments(const Profile& profile, Settings arguments) {
  ReadSettings out;
  complete(arguments);
  for (const ConfigLine& line : profile.config) {
    if (line.how == How::megatron_constant) {
      const json::Value* value = arguments.find(line.megatron.front());
      if (fits(value, line.constant)) continue;
      out.differences.push_back(
          {line.megatron.front(), value_text(value) + "; the profile has " + text_of(line.constant)});
      continue;
    }
    if (line.how == How::hf_constant) continue;
    const json::Value* value = first_setting(arguments, line.megatron);
    if (value == nullptr) {
      auto other = default_of(line, arguments);
      if (!other) continue;
      if (line.how == How::negated) other = negated(*other);
      arguments.set(line.megatron.front(), *std::move(other));
    } else if (!as_config(line, *value, arguments)) {
      out.differences.push_back({line.megatron.front(), value_text(value) + "; config.json cannot say it"});
    }
  }
  complete(arguments);
  out.settings = std::move(arguments);
  return out;
}

Settings to_arguments(const Profile& profile, const Settings& settings) {
  Settings out = settings;
  for (const ConfigLine& line : profile.config) {
    if (line.how == How::megatron_constant) out.set(line.megatron.front(), line.constant);
  }
  const auto heads = out.count("num_attention_heads");
  const auto groups = out.count("num_query_groups");
  if (heads && groups) out.set("group_query_attention", {*heads != *groups});
  complete(out);
  return out;
}

std::string to_config(const Profile& profile, const Settings& settings, std::string_view dtype) {
  json::Object out;
  out.emplace_back("architectures", json::Value{json::Array{json::Value{profile.architecture}}});
  out.emplace_back("model_type", json::Value{profile.model_type});
  for (const ConfigLine& line : profile.config) {
    if (line.how == How::megatron_constant || line.how == How::derived) continue;
    if (line.how == How::hf_constant) {
      put(out, line.hf.front(), line.constant);
      continue;
    }
    const json::Value* value = first_setting(settings, line.megatron);
    if (value == nullptr) continue;
    if (const auto said = as_config(line, *value, settings)) put(out, line.hf.back(), *said);
    if (line.how == How::sparse_step) put_dense_layers(out, settings.counts(line.megatron.front()));
  }
  if (!dtype.empty()) out.emplace_back("torch_dtype", json::Value{std::string(dtype)});
  std::ranges::sort(out, {}, [](const auto& one) { return one.first; });
  std::string text = "{";
  for (std::size_t i = 0; i < out.size(); ++i)
    text += (i == 0 ? "\n  " : ",\n  ") + text_of({out[i].first}) + ": " + text_of(out[i].second);
  return text + "\n}\n";
}

std::vector<Difference> compare(const Profile& profile, const json::Value& config, const Settings& arguments) {
  std::vector<Difference> out;
  for (const ConfigLine& line : profile.config) {
    if (line.hf.empty() || line.how == How::hf_constant || line.how == How::scaling) continue;
    const json::Value* here = first_member(config, line.hf);
    const json::Value* there = first_setting(arguments, line.megatron);
    if (here == nullptr || there == nullptr) continue;
    const auto said = as_config(line, *there, arguments);
    if (said && is_equal(*here, *said)) continue;
    out.push_back({line.hf.back(), text_of(*here) + "; " + line.megatron.front() + " gives " +
                                       (said ? text_of(*said) : std::string("nothing that it can say"))});
  }
  return out;
}

const Profile* profile_for_arguments(std::span<const Profile> all, const Settings& arguments) {
  const auto found = std::ranges::find_if(all, [&](const Profile& profile) {
    return std::ranges::all_of(profile.config, [&](const ConfigLine& line) {
      return line.how != How::megatron_constant || fits(arguments.find(line.megatron.front()), line.constant);
    });
  });
  return found == all.end() ? nullptr : &*found;
}

const Profile* profile_for_config(std::span<const Profile> all, const json::Value& config) {
  const json::Value* type = config.find("model_type");
  const json::Value* names = config.find("architectures");
  const auto is_of = [&](const Profile& profile) {
    if (type != nullptr && type->text() != nullptr) return profile.model_type == *type->text();
    return names != nullptr && names->array() != nullptr && !names->array()->empty() &&
           is_equal(names->array()->front(), {profile.architecture});
  };
  const auto found = std::ranges::find_if(all, is_of);
  return found == all.end() ? nullptr : &*found;
}

std::vector<bool> expert_layers(const Settings& settings, std::uint64_t layers) {
  const bool has_experts = settings.is_set("num_experts");
  std::vector<bool> out(static_cast<std::size_t>(layers), has_experts);
  const auto listed = settings.counts("moe_layer_freq");
  if (!has_experts || !listed) return out;
  for (std::size_t l = 0; l < out.size(); ++l) out[l] = l < listed->size() && (*listed)[l] != 0;
  return out;
}

}  // namespace ckpt::naming
