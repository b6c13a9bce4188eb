#include "format/torch/value_pickle.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

namespace ckpt::torch {
namespace {

// torch/_weights_only_unpickler.py: _get_allowed_globals, except tensor constructors and element types.
constexpr std::array<std::string_view, 8> kWeightsOnlyCalls{
    "_codecs.encode",     "__builtin__.bytearray", "__builtin__.complex", "__builtin__.set",
    "builtins.bytearray", "builtins.complex",      "builtins.set",        "torch.device",
};

bool is_weights_only(const Opaque& object) {
  if (object.args == nullptr && object.global.starts_with("torch."))  // an element type, a layout
    return object.global.find('.', 6) == std::string::npos;
  return object.args != nullptr && object.state == nullptr &&
         std::ranges::find(kWeightsOnlyCalls, object.global) != kWeightsOnlyCalls.end();
}

/// A name that has the form "module name": the reader may have found none.
bool is_nameable(std::string_view global) {
  const std::size_t dot = global.rfind('.');
  return dot != std::string_view::npos && dot > 0 && dot + 1 < global.size() &&
         global.find_first_of(" ()\n") == std::string_view::npos && global != "...";
}

}  // namespace

bool ValuePickler::is_left_out(const ValuePtr& value) const {
  const auto* tensor = value == nullptr ? nullptr : std::get_if<TensorRef>(&value->v);
  return tensor != nullptr && !has_tensor_(*tensor);
}

void ValuePickler::value(const ValuePtr& value) {
  if (value == nullptr) return out_.none();
  if (const auto known = shared_.find(value.get()); known != shared_.end()) return out_.get(known->second);
  content(*value);
  const auto* tensor = std::get_if<TensorRef>(&value->v);
  const auto* object = std::get_if<Opaque>(&value->v);
  const bool is_container = std::holds_alternative<List>(value->v) || std::holds_alternative<Dict>(value->v) ||
                            (object != nullptr && object->args != nullptr) ||
                            (tensor != nullptr && has_tensor_(*tensor));
  const auto* list = std::get_if<List>(&value->v);
  const bool is_empty_tuple = list != nullptr && list->kind == List::Kind::tuple && list->items.empty();
  if (is_container && value.use_count() > 1 && (!is_empty_tuple || list->is_special))
    shared_.emplace(value.get(), last_);
}

void ValuePickler::content(const Value& value) {
  struct Visit {
    ValuePickler& to;
    void operator()(const None&) const { to.out_.none(); }
    void operator()(bool held) const { to.out_.boolean(held); }
    void operator()(std::int64_t held) const { to.out_.integer(held); }
    void operator()(const BigInt& held) const { to.out_.big_integer(held.decimal); }
    void operator()(double held) const { to.out_.real(held); }
    void operator()(const std::string& held) const { to.out_.text(held); }
    void operator()(const Bytes& held) const { to.out_.bytes(held.data); }
    void operator()(const List& held) const { to.list(held); }
    void operator()(const Dict& held) const { to.dict(held); }
    void operator()(const Opaque& held) const { to.object(held); }
    void operator()(const TensorRef& held) const {
      if (!to.has_tensor_(held)) return to.out_.none();
      to.last_ = to.write_tensor_(held);
    }
  };
  std::visit(Visit{*this}, value.v);
}

void ValuePickler::list(const List& list) {
  const bool is_size = list.kind == List::Kind::tuple && list.is_special;
  if (is_size) {
    out_.begin_object();
    out_.global("torch Size");
    out_.begin_tuple(1);
  }
  switch (list.kind) {
    case List::Kind::list:
      out_.begin_list(list.items.size());
      break;
    case List::Kind::tuple:
      out_.begin_tuple(list.items.size());
      break;
    case List::Kind::set:
      out_.begin_set(list.items.size(), list.is_special);
      break;
  }
  for (const ValuePtr& item : list.items) value(item);
  last_ = out_.end();
  if (!is_size) return;
  out_.end();
  out_.reduce();
  last_ = out_.end();
}

void ValuePickler::dict(const Dict& dict) {
  std::vector<const std::pair<ValuePtr, ValuePtr>*> entries;
  entries.reserve(dict.items.size());
  for (const auto& entry : dict.items) {
    if (!is_left_out(entry.second)) entries.push_back(&entry);
  }
  const auto add_entries = [&] {
    for (const auto* entry : entries) {
      value(entry->first);
      value(entry->second);
    }
  };
  if (dict.kind == Dict::Kind::plain) {
    out_.begin_dict(entries.size());
    add_entries();
    last_ = out_.end();
    return;
  }
  out_.begin_object();
  if (dict.kind == Dict::Kind::counter) {
    out_.global("collections Counter");
    out_.begin_tuple(1);
    out_.begin_dict(entries.size());
    add_entries();
    out_.end();
    out_.end();
    out_.reduce();
  } else {
    const bool has_factory = dict.kind == Dict::Kind::with_default && dict.factory != nullptr;
    out_.global(dict.kind == Dict::Kind::with_default ? "collections defaultdict" : "collections OrderedDict");
    out_.begin_tuple(has_factory ? 1 : 0);
    if (has_factory) value(dict.factory);
    out_.end();
    out_.reduce();
    if (!entries.empty()) {
      out_.begin_pairs(entries.size());
      add_entries();
      out_.end();
    }
  }
  if (dict.attributes != nullptr) {
    value(dict.attributes);
    out_.build();
  }
  last_ = out_.end();
}

/// Protocol 2 calls the module of Python 3's builtins as Python 2 did.
void ValuePickler::global(const std::string& dotted) {
  std::string name = dotted;
  if (const std::size_t dot = name.rfind('.'); dot != std::string::npos) name[dot] = ' ';
  if (name.starts_with("builtins ")) name.replace(0, 8, "__builtin__");
  out_.global(name);
}

void ValuePickler::object(const Opaque& object) {
  if (object.args == nullptr) {
    global(object.global);
    return;
  }
  out_.begin_object();
  global(object.global);
  value(object.args);
  object.is_new ? out_.new_object() : out_.reduce();
  ValuePtr state = object.state;
  if (const auto* parts = state == nullptr ? nullptr : std::get_if<Dict>(&state->v); object.has_items && parts) {
    const ValuePtr items = parts->items.back().second;
    state = parts->items.size() > 1 ? parts->items.front().second : nullptr;
    if (const auto* pairs = std::get_if<Dict>(&items->v)) {
      out_.begin_pairs(pairs->items.size());
      for (const auto& [key, held] : pairs->items) {
        value(key);
        value(held);
      }
      out_.end();
    } else if (const auto* values = std::get_if<List>(&items->v)) {
      out_.begin_items(values->items.size());
      for (const ValuePtr& item : values->items) value(item);
      out_.end();
    }
  }
  if (state != nullptr) {
    value(state);
    out_.build();
  }
  last_ = out_.end();
}

std::vector<std::string> unwritable_classes(const ValuePtr& root, Loadable loadable) {
  std::set<std::string> names;
  std::unordered_set<const Value*> seen;
  std::vector<const Value*> open{root.get()};
  while (!open.empty()) {
    const Value* value = open.back();
    open.pop_back();
    if (value == nullptr || !seen.insert(value).second) continue;
    if (const auto* list = std::get_if<List>(&value->v)) {
      if (loadable == Loadable::weights_only && list->kind == List::Kind::set && list->is_special)
        names.insert("builtins.frozenset");
      for (const ValuePtr& item : list->items) open.push_back(item.get());
    } else if (const auto* dict = std::get_if<Dict>(&value->v)) {
      if (loadable == Loadable::weights_only && dict->kind == Dict::Kind::with_default)
        names.insert("collections.defaultdict");
      for (const auto& [key, held] : dict->items) {
        open.push_back(key.get());
        open.push_back(held.get());
      }
      open.push_back(dict->attributes.get());
    } else if (const auto* object = std::get_if<Opaque>(&value->v)) {
      const bool is_call = object->args != nullptr && std::holds_alternative<List>(object->args->v);
      const bool fits = is_nameable(object->global) && (object->args == nullptr ? object->state == nullptr : is_call);
      if (!fits || (loadable == Loadable::weights_only && !is_weights_only(*object))) names.insert(object->global);
      open.push_back(object->args.get());
      open.push_back(object->state.get());
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace ckpt::torch
