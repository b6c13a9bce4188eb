#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "format/checked.hpp"
#include "format/model/map_rules.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

// The first bytes up to a newline are a tensor's name, the rest is the file. What rules say of it is within bounds, and
// the texts that stars stand for, put in their places, are the name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\n'), input.size());
  const std::string_view name = input.substr(0, end);
  const auto rules = ckpt::MapRules::parse(input.substr(std::min(end + 1, input.size())), "rules.json");
  if (!rules) {
    require(rules.error().code == ckpt::Errc::usage);
    return 0;
  }
  for (const std::string& pattern : rules->unused()) {
    const auto stars = ckpt::match_stars(name, pattern);
    if (!stars) continue;
    std::string rebuilt;
    std::size_t star = 0;
    for (const char c : pattern) {
      if (c == '*') {
        rebuilt += (*stars)[star++];
      } else {
        rebuilt += c;
      }
    }
    require(rebuilt == name);
  }
  const std::size_t before = rules->unused().size();
  const auto* held = rules->holds(name);
  if (held != nullptr) {
    for (const auto& one : *held) require(ckpt::checked_volume(one.shape).has_value());
  }
  const bool found = held != nullptr || rules->join(name) || rules->renamed(name);
  require((rules->unused().size() < before) == found);
  return 0;
}
