#include "api/convert/model_facts.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "convert/extras.hpp"
#include "format/model/training_state.hpp"
#include "format/model/value_text.hpp"
#include "format/text/json.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kValueBytes = 80;  // of one hyperparameter, as text
constexpr std::string_view kBetween = " · ";

/// A JSON file of the model: an extra of the checkpoint, or a file in its directory.
std::optional<json::Value> read_settings_file(Io& io, const Source& source, const std::string& name) {
  const auto extra = std::ranges::find(source.map.extras, name, &Extra::path);
  const auto text = extra != source.map.extras.end()
                        ? read_extra(io, source.map, source.root, *extra, kLargestConfig)
                        : read_small_file(source.names_io(), join_path(source.names_root(), name), kLargestConfig);
  if (!text) return std::nullopt;
  auto parsed = json::parse(*text);
  return parsed ? std::optional(*std::move(parsed)) : std::nullopt;
}

/// A member as text; empty if it is neither text nor a number.
std::string member_text(const json::Value& value, std::string_view key) {
  const json::Value* found = value.find(key);
  if (found == nullptr) return {};
  if (const std::string* text = found->text()) return *text;
  if (const std::uint64_t* number = found->natural()) return fmt::format("{}", *number);
  return {};
}

void append(std::string& out, const std::string& text) {
  if (text.empty()) return;
  if (!out.empty()) out += kBetween;
  out += text;
}

/// "gptq · 4 bits · groups of 128", by a config.json.
std::optional<std::string> quantisation(const json::Value& config) {
  const json::Value* quantised = config.find("quantization_config");
  if (quantised == nullptr || quantised->object() == nullptr) return std::nullopt;
  std::string text = member_text(*quantised, "quant_method");
  for (const std::string_view key : {"bits", "w_bit"})
    if (const std::string bits = member_text(*quantised, key); !bits.empty()) append(text, bits + " bits");
  if (const std::string group = member_text(*quantised, "group_size"); !group.empty())
    append(text, "groups of " + group);
  return text.empty() ? "yes" : text;
}

void add_config(const json::Value& config, std::vector<InspectReport::Fact>& out) {
  std::string model = member_text(config, "model_type");
  if (const json::Value* classes = config.find("architectures"); classes != nullptr && classes->array() != nullptr)
    for (const json::Value& one : *classes->array())
      if (one.text() != nullptr) append(model, *one.text());
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> sizes{
      {{"num_hidden_layers", "layers"}, {"hidden_size", "hidden"}, {"vocab_size", "vocabulary"}}};
  for (const auto& [key, name] : sizes)
    if (const std::string text = member_text(config, key); !text.empty())
      append(model, fmt::format("{} {}", text, name));
  if (!model.empty()) out.push_back({"model", model});
  if (const auto text = quantisation(config))
    out.push_back({"quantised", *text + ": tensors hold packed values, not one element per parameter"});
}

void add_adapter(const json::Value& config, std::vector<InspectReport::Fact>& out) {
  std::string text = member_text(config, "peft_type");
  if (text.empty()) text = "PEFT";
  if (const std::string rank = member_text(config, "r"); !rank.empty()) append(text, "rank " + rank);
  const std::string base = member_text(config, "base_model_name_or_path");
  append(text, base.empty() ? "no base model named" : "for the base model " + base);
  out.push_back({"adapter", text});
}

const Value* option(const ParameterGroup& group, std::string_view name) {
  for (const auto& [key, value] : group.options)
    if (key == name) return &value;
  return nullptr;
}

/// A number with a fraction by 6 digits: a learning rate of a schedule is 0.00030000000000000003.
std::string rounded(std::string text) {
  const auto number = parse_number<double>(text);
  return number && text.find('.') != std::string::npos ? fmt::format("{:.6g}", *number) : text;
}

/// The values of an option in all groups, each once.
std::string option_text(const std::vector<ParameterGroup>& groups, std::string_view name) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> texts;
  bool has_more = false;
  for (const ParameterGroup& group : groups) {
    const Value* value = option(group, name);
    if (value == nullptr) continue;
    std::string text = rounded(value_text(*value, kValueBytes));
    if (std::ranges::find(texts, text) != texts.end()) continue;
    has_more = texts.size() == kMost;
    if (has_more) break;
    texts.push_back(std::move(text));
  }
  if (has_more) texts.emplace_back("others");
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : " and ") + text;
  return out.empty() ? out : fmt::format("{} {}", name, out);
}

void add_optimizer(const Map& map, std::vector<InspectReport::Fact>& out) {
  const std::vector<StateItem> items = all_items(map);
  const TrainingState state =
      training_state({.map = &map, .items = items, .aliases = map.aliases, .objects = map.objects});
  if (!state.has_group_options) return;
  std::string text;
  for (const std::string_view name : {"lr", "betas", "momentum", "weight_decay"})
    append(text, option_text(state.groups, name));
  if (text.empty()) return;
  if (state.groups.size() > 1) append(text, fmt::format("{} groups", state.groups.size()));
  out.push_back({"optimizer", text});
}

}  // namespace

InspectReport::Fact saved_fact(std::int64_t mtime_ns) {
  const std::time_t seconds = mtime_ns / 1'000'000'000;
  return {"saved", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(seconds))};
}

std::optional<std::string> quantisation(Io& io, const Source& source) {
  const auto config = read_settings_file(io, source, "config.json");
  return config ? quantisation(*config) : std::nullopt;
}

std::vector<InspectReport::Fact> model_facts(Io& io, const Source& source) {
  std::vector<InspectReport::Fact> out;
  if (const auto config = read_settings_file(io, source, "config.json")) add_config(*config, out);
  if (const auto adapter = read_settings_file(io, source, "adapter_config.json")) add_adapter(*adapter, out);
  add_optimizer(source.map, out);
  std::int64_t newest_ns = 0;
  for (const MapFile& file : source.map.files)
    if (!is_temporary(file) && !is_referenced(file)) newest_ns = std::max(newest_ns, file.mtime_ns);
  if (newest_ns > 0) out.push_back(saved_fact(newest_ns));
  return out;
}

}  // namespace ckpt
