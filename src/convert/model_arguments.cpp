#include "convert/model_arguments.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace ckpt {
namespace {

/// A value that is a setting; nothing of other kinds.
std::optional<json::Value> setting_of(const Value& value) {
  if (std::holds_alternative<None>(value.v)) return json::Value{nullptr};
  if (const auto* boolean = std::get_if<bool>(&value.v)) return json::Value{*boolean};
  if (const auto* real = std::get_if<double>(&value.v)) return json::Value{*real};
  if (const auto* text = std::get_if<std::string>(&value.v)) return json::Value{*text};
  if (const auto* number = std::get_if<std::int64_t>(&value.v))
    return *number < 0 ? json::Value{*number} : json::Value{static_cast<std::uint64_t>(*number)};
  const auto* list = std::get_if<List>(&value.v);
  if (list == nullptr) return std::nullopt;
  json::Array items;
  for (const ValuePtr& item : list->items) {
    const auto* number = item == nullptr ? nullptr : std::get_if<std::int64_t>(&item->v);
    if (number == nullptr || *number < 0) return std::nullopt;
    items.push_back({static_cast<std::uint64_t>(*number)});
  }
  return json::Value{std::move(items)};
}

Value as_value(const json::Value& setting) {
  if (const auto* boolean = setting.boolean()) return {*boolean};
  if (const auto* natural = setting.natural()) return {static_cast<std::int64_t>(*natural)};
  if (const auto* negative = setting.negative()) return {*negative};
  if (const auto* real = setting.real()) return {*real};
  if (const auto* text = setting.text()) return {*text};
  if (const auto* array = setting.array()) {
    List list;
    for (const json::Value& item : *array) list.items.push_back(std::make_shared<Value>(as_value(item)));
    return {std::move(list)};
  }
  return {None{}};
}

/// The tokenizer for tests adds a token to the number that it is given.
/// source  megatron/core/tokenizers/text/libraries/null_tokenizer.py
void count_vocabulary(naming::Settings& settings) {
  const auto given = settings.count("vocab_size");
  const json::Value* tokenizer = settings.find("tokenizer_type");
  const bool adds_one = tokenizer != nullptr && tokenizer->text() != nullptr && *tokenizer->text() == "NullTokenizer";
  if (given) {
    if (adds_one) settings.set("vocab_size", {*given + 1});
  } else if (const json::Value* padded = settings.find("padded_vocab_size")) {
    settings.set("vocab_size", *padded);
  }
}

}  // namespace

naming::Settings model_arguments(const Map& map) {
  naming::Settings out;
  const auto object = std::ranges::find(map.objects, kArguments, &NamedObject::name);
  if (object == map.objects.end()) return out;
  const Value* value = &object->value;
  if (const auto* opaque = std::get_if<Opaque>(&value->v)) value = opaque->state.get();
  const auto* dict = value == nullptr ? nullptr : std::get_if<Dict>(&value->v);
  if (dict == nullptr) return out;
  for (const auto& [key, item] : dict->items) {
    const auto* name = key == nullptr ? nullptr : std::get_if<std::string>(&key->v);
    if (name == nullptr || item == nullptr) continue;
    if (auto setting = setting_of(*item)) out.set(*name, *std::move(setting));
  }
  count_vocabulary(out);
  return out;
}

Value as_arguments(const naming::Settings& settings) {
  Dict dict;
  for (const auto& [name, value] : settings.all())
    dict.items.emplace_back(std::make_shared<Value>(Value{name}), std::make_shared<Value>(as_value(value)));
  return as_namespace(std::move(dict));
}

Value as_namespace(Dict attributes) {
  return {Opaque{.global = "argparse.Namespace",
                 .args = std::make_shared<Value>(Value{List{.kind = List::Kind::tuple}}),
                 .state = std::make_shared<Value>(Value{std::move(attributes)}),
                 .is_new = true}};
}

}  // namespace ckpt
