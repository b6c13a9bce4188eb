#include "format/model/name_order.hpp"

#include <algorithm>
#include <cstddef>

namespace ckpt {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// The digits from `at` on.
std::string_view digits(std::string_view name, std::size_t at) {
  std::size_t end = at;
  while (end < name.size() && is_digit(name[end])) ++end;
  return name.substr(at, end - at);
}

enum class Neighbours { may_be_module_order, may_be_chance, only_sorted };

/// `a` is before `b` in the order of bytes.
Neighbours compare(std::string_view a, std::string_view b) {
  std::size_t at = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  if (a.substr(at) == "bias" && b.substr(at) == "weight") return Neighbours::only_sorted;
  while (at > 0 && is_digit(a[at - 1])) --at;
  const std::string_view first = digits(a, at);
  const std::string_view second = digits(b, at);
  if (first.empty() || second.empty()) return Neighbours::may_be_chance;
  return first.size() > second.size() ? Neighbours::only_sorted : Neighbours::may_be_module_order;
}

}  // namespace

bool is_sorted_by_name(std::span<const std::string_view> names) {
  constexpr std::size_t kMostChances = 3;
  std::size_t chances = 0;
  bool only_sorted = false;
  for (std::size_t i = 1; i < names.size(); ++i) {
    if (names[i] < names[i - 1]) return false;
    const Neighbours found = compare(names[i - 1], names[i]);
    only_sorted = only_sorted || found == Neighbours::only_sorted;
    chances += found == Neighbours::may_be_chance ? 1U : 0U;
  }
  return only_sorted || chances > kMostChances;
}

}  // namespace ckpt
