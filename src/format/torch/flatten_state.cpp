#include "format/torch/flatten_state.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace ckpt::torch {
namespace {

/// str(key), for the keys whose text is the same in every release of Python.
std::optional<std::string> key_text(const Value& key) {
  if (const auto* text = std::get_if<std::string>(&key.v)) return *text;
  if (const auto* number = std::get_if<std::int64_t>(&key.v)) return std::to_string(*number);
  if (const auto* number = std::get_if<BigInt>(&key.v)) return number->decimal;
  return std::nullopt;
}

const List* as_plain_list(const Value& value) {
  const auto* list = std::get_if<List>(&value.v);
  return list != nullptr && list->kind == List::Kind::list ? list : nullptr;
}

/// Lists hold other lists at most as deep as readers let values nest.
bool is_descended(const Value& value) {
  if (const auto* dict = std::get_if<Dict>(&value.v)) {
    return std::ranges::all_of(dict->items, [](const auto& item) { return key_text(*item.first).has_value(); });
  }
  const List* list = as_plain_list(value);
  return list != nullptr && std::ranges::any_of(list->items, [](const ValuePtr& item) {
           return std::holds_alternative<TensorRef>(item->v) || std::holds_alternative<Dict>(item->v) ||
                  is_descended(*item);
         });
}

void flatten(Path& path, const ValuePtr& value, std::vector<FlatValue>& out) {
  if (!is_descended(*value)) {
    out.push_back({path, value});
    return;
  }
  const auto visit = [&](PathPart part, const ValuePtr& item) {
    path.push_back(std::move(part));
    flatten(path, item, out);
    path.pop_back();
  };
  if (const auto* dict = std::get_if<Dict>(&value->v)) {
    for (const auto& [key, item] : dict->items) visit(*key_text(*key), item);
  } else {
    std::int64_t index = 0;
    for (const ValuePtr& item : as_plain_list(*value)->items) visit(index++, item);
  }
}

}  // namespace

std::vector<FlatValue> flatten_state(const Path& path, const ValuePtr& value) {
  std::vector<FlatValue> out;
  Path at = path;
  flatten(at, value, out);
  return out;
}

}  // namespace ckpt::torch
