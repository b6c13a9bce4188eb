#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.hpp"
#include "format/text/json.hpp"

namespace ckpt::naming {

/// What is known of a model: values by the names of Megatron-LM's arguments (`num_layers`, `swiglu`).
class Settings {
 public:
  void set(const std::string& name, json::Value value) { values_[name] = std::move(value); }
  /// Null if it is not known: missing, or JSON's null.
  const json::Value* find(std::string_view name) const;
  std::optional<std::uint64_t> count(std::string_view name) const;
  /// Whether it is true, a number but 0, or a text or a list that is not empty.
  bool is_set(std::string_view name) const;
  /// Those of a list, where it is one of numbers.
  std::optional<std::vector<std::uint64_t>> counts(std::string_view name) const;
  const std::map<std::string, json::Value, std::less<>>& all() const { return values_; }

 private:
  std::map<std::string, json::Value, std::less<>> values_{};
};

/// Equal as values: 1 is 1.0.
bool is_equal(const json::Value& a, const json::Value& b);
/// JSON text, on one line.
std::string text_of(const json::Value& value);

/// The value of an expression: numbers, names of settings, + - * / and parentheses; h, f, n, g, d and V mean
/// hidden_size, ffn_hidden_size, num_attention_heads, num_query_groups, kv_channels and vocab_size. A number before a
/// name multiplies it.
/// errors  usage: it is not such an expression; not_found with the name: a setting is not known; refused: it overflows,
///         or a division leaves a rest
Result<std::uint64_t> evaluate(std::string_view expression, const Settings& settings);

}  // namespace ckpt::naming
