#include "format/model/value.hpp"

#include <cstddef>

#include "format/text/utf8.hpp"

namespace ckpt {
namespace {

void append_hex(std::string& out, unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  out += '%';
  out += kDigits[byte >> 4];
  out += kDigits[byte & 15];
}

}  // namespace

std::string part_text(const PathPart& part) {
  if (const auto* text = std::get_if<std::string>(&part)) return *text;
  return std::to_string(std::get<std::int64_t>(part));
}

std::string dotted(const Path& path) {
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (i != 0) out += '.';
    out += part_text(path[i]);
  }
  return out;
}

std::string dotted_escaped(const Path& path) {
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (i != 0) out += '.';
    const std::string text = part_text(path[i]);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = first_code_point(std::string_view(text).substr(at)).bytes;
      if (length == 0 || text[at] == '%' || text[at] == '.') {
        append_hex(out, static_cast<unsigned char>(text[at]));
        ++at;
      } else {
        out.append(text, at, length);
        at += length;
      }
    }
  }
  return out;
}

bool splits_to(std::string_view name, const Path& path) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const auto* text = std::get_if<std::string>(&path[i]);
    if (text == nullptr || text->find('.') != std::string::npos) return false;
    if (name.substr(at, text->size()) != *text) return false;
    at += text->size();
    if (i + 1 < path.size()) {
      if (at >= name.size() || name[at] != '.') return false;
      ++at;
    }
  }
  return at == name.size();
}

Path split_at_dots(std::string_view name) {
  Path out;
  for (;;) {
    const std::size_t dot = name.find('.');
    out.emplace_back(std::string(name.substr(0, dot)));
    if (dot == std::string_view::npos) return out;
    name.remove_prefix(dot + 1);
  }
}

Path renamed_path(const Path& path, const std::string& old_name, const std::string& new_name) {
  if (new_name == old_name) return path;
  if (old_name.ends_with(new_name)) {
    for (std::size_t dropped = 1; dropped < path.size(); ++dropped) {
      Path rest(path.begin() + static_cast<std::ptrdiff_t>(dropped), path.end());
      if (dotted(rest) == new_name) return rest;
    }
  } else if (new_name.ends_with("." + old_name)) {
    Path out = split_at_dots(std::string_view(new_name).substr(0, new_name.size() - old_name.size() - 1));
    out.insert(out.end(), path.begin(), path.end());
    return out;
  }
  return {new_name};
}

bool nests_within(const Value& value, std::size_t levels, std::size_t most) {
  struct Place {
    const Value* value;
    std::size_t depth;
  };
  std::vector<Place> pending{{&value, 1}};
  for (std::size_t seen = 0; !pending.empty() && seen <= most; ++seen) {
    const Place at = pending.back();
    pending.pop_back();
    if (at.depth > levels) return false;
    const auto add = [&](const ValuePtr& inner) {
      if (inner != nullptr) pending.push_back({inner.get(), at.depth + 1});
    };
    if (const auto* list = std::get_if<List>(&at.value->v)) {
      for (const ValuePtr& item : list->items) add(item);
    } else if (const auto* dict = std::get_if<Dict>(&at.value->v)) {
      for (const auto& [key, item] : dict->items) {
        add(key);
        add(item);
      }
    } else if (const auto* object = std::get_if<Opaque>(&at.value->v)) {
      add(object->args);
      add(object->state);
    }
  }
  return true;
}

}  // namespace ckpt
