#include "convert/megatron/dict_members.hpp"

#include <string>
#include <utility>

#include "convert/state_archive.hpp"
#include "format/model/object_tree.hpp"

namespace ckpt::megatron {
namespace {

bool is_key(const ValuePtr& key, std::string_view name) {
  const std::string* text = text_of(key.get());
  return text != nullptr && *text == name;
}

}  // namespace

ValuePtr get(const Dict& dict, std::string_view name) {
  for (const auto& [key, value] : dict.items)
    if (is_key(key, name)) return value;
  return nullptr;
}

void set(Dict& dict, std::string_view name, ValuePtr value) {
  for (auto& [key, held] : dict.items) {
    if (!is_key(key, name)) continue;
    held = std::move(value);
    return;
  }
  dict.items.emplace_back(value_of(name), std::move(value));
}

void remove(Dict& dict, std::string_view name) {
  std::erase_if(dict.items, [&](const auto& item) { return is_key(item.first, name); });
}

}  // namespace ckpt::megatron
