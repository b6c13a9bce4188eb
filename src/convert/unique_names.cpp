#include "convert/unique_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <variant>

#include "format/text/utf8.hpp"

namespace ckpt {
namespace {

constexpr int kRounds = 8;

std::string utf8_prefix(const Nameless& item) {
  return is_utf8(item.prefix) ? item.prefix : dotted_escaped({item.prefix});
}

std::string escaped(const Nameless& item) {
  return utf8_prefix(item) + dotted_escaped(item.path);
}

bool reads_as_integer(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// As escaped, but a text of digits differs from the integer: its first character is %XX.
std::string escaped_with_digits(const Nameless& item) {
  std::string name = utf8_prefix(item);
  for (std::size_t i = 0; i < item.path.size(); ++i) {
    if (i != 0) name += '.';
    std::string part = dotted_escaped({item.path[i]});
    const bool is_text = std::holds_alternative<std::string>(item.path[i]);
    if (is_text && reads_as_integer(part)) part = fmt::format("%{:02X}", part.front()) + part.substr(1);
    name += part;
  }
  return name;
}

}  // namespace

Result<std::vector<std::string>> unique_names(std::span<const Nameless> items) {
  std::vector<std::string> names;
  enum Level : std::uint8_t { kPlain, kEscaped, kWithDigits };
  std::vector<Level> levels(items.size(), kPlain);
  const auto escape = [&](std::size_t i) {
    levels[i] = levels[i] == kPlain ? kEscaped : kWithDigits;
    names[i] = levels[i] == kEscaped ? escaped(items[i]) : escaped_with_digits(items[i]);
  };
  for (std::size_t i = 0; i < items.size(); ++i) {
    names.push_back(items[i].prefix + dotted(items[i].path));
    if (!is_utf8(names[i])) escape(i);
  }
  // An escaped name may equal an unescaped one; each round escapes at least one more, the last one all.
  int round = 0;
  for (bool changed = true; changed; ++round) {
    changed = false;
    std::unordered_map<std::string, std::size_t> first;
    first.reserve(items.size());
    std::vector<std::size_t> collide;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto [at, is_new] = first.emplace(names[i], i);
      if (is_new) continue;
      if (levels[i] == kWithDigits && levels[at->second] == kWithDigits) {
        return fail({.code = Errc::corrupt,
                     .message = "names: two items are both named '" + names[i] + "'",
                     .tensor = names[i]});
      }
      collide.push_back(i);
      collide.push_back(at->second);
    }
    if (!collide.empty() && round == kRounds) {
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (levels[i] == kPlain) escape(i);
      }
    }
    std::sort(collide.begin(), collide.end());
    collide.erase(std::unique(collide.begin(), collide.end()), collide.end());
    for (const std::size_t i : collide) {
      if (levels[i] == kWithDigits) continue;
      escape(i);
      changed = true;
    }
  }
  return names;
}

}  // namespace ckpt
