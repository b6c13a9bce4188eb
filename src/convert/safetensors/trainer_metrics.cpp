#include "convert/safetensors/trainer_metrics.hpp"

#include <array>
#include <map>
#include <optional>

#include "format/text/json.hpp"

namespace ckpt::safetensors {
namespace {

/// Python writes numbers that JSON does not have.
void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

bool is_evaluation(std::string_view key) {
  static constexpr std::array<std::string_view, 3> speeds{"_runtime", "_per_second", "_compilation_time"};
  if (!key.starts_with("eval_")) return false;
  for (const std::string_view speed : speeds)
    if (key.ends_with(speed)) return false;
  return true;
}

}  // namespace

std::vector<std::pair<std::string, double>> parse_trainer_metrics(std::string_view document) {
  std::string text(document);
  for (const std::string_view odd : {": NaN", ": Infinity", ": -Infinity"}) replace_all(text, odd, ": null");
  const auto root = json::parse(text);
  if (!root) return {};
  const json::Value* step = root->find("global_step");
  const json::Value* history = root->find("log_history");
  if (step == nullptr || step->natural() == nullptr || history == nullptr || history->array() == nullptr) return {};
  std::map<std::string, double> found;
  for (const json::Value& entry : *history->array()) {
    if (entry.object() == nullptr) continue;
    const json::Value* at = entry.find("step");
    const bool is_here = at != nullptr && at->natural() != nullptr && *at->natural() == *step->natural();
    for (const auto& [key, value] : *entry.object()) {
      const auto number = value.number();
      if (number && (key == "loss" || (is_here && is_evaluation(key)))) found[key] = *number;
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace ckpt::safetensors
