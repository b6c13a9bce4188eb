#include "convert/torch/names.hpp"

#include <numeric>
#include <unordered_map>

namespace ckpt::torch {
namespace {

constexpr int kRounds = 8;

std::string escaped(const Nameless& item) {
  const std::string prefix = is_utf8(item.prefix) ? item.prefix : dotted_escaped({item.prefix});
  return prefix + dotted_escaped(item.path);
}

}  // namespace

Result<std::vector<std::string>> unique_names(std::span<const Nameless> items) {
  std::vector<std::string> names;
  std::vector<bool> is_escaped(items.size(), false);
  const auto escape = [&](std::size_t i) {
    is_escaped[i] = true;
    names[i] = escaped(items[i]);
  };
  for (std::size_t i = 0; i < items.size(); ++i) {
    names.push_back(items[i].prefix + dotted(items[i].path));
    if (!is_utf8(names[i])) escape(i);
  }
  // An escaped name may meet one that stands as it is; each round escapes at least one more, the last one all.
  int round = 0;
  for (bool changed = true; changed; ++round) {
    changed = false;
    std::unordered_map<std::string, std::size_t> first;
    first.reserve(items.size());
    std::vector<std::size_t> collide;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto [at, is_new] = first.emplace(names[i], i);
      if (is_new) continue;
      if (is_escaped[i] && is_escaped[at->second]) {
        return fail({.code = Errc::corrupt,
                     .message = "names: two items are both named '" + names[i] + "'",
                     .tensor = names[i]});
      }
      collide.push_back(i);
      collide.push_back(at->second);
    }
    if (!collide.empty() && round == kRounds) {
      collide.resize(items.size());
      std::iota(collide.begin(), collide.end(), std::size_t{0});
    }
    for (const std::size_t i : collide) {
      if (is_escaped[i]) continue;
      escape(i);
      changed = true;
    }
  }
  return names;
}

}  // namespace ckpt::torch
