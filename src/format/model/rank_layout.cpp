#include "format/model/rank_layout.hpp"

#include <charconv>

namespace ckpt {

std::string ranked_name(std::string_view name, std::uint64_t rank) {
  return std::string(name) + "@" + std::to_string(rank);
}

RankedName split_ranked_name(std::string_view name, std::size_t ranks) {
  const std::size_t at = name.rfind('@');
  if (at == std::string_view::npos || at + 1 == name.size()) return {name};
  std::uint64_t rank = 0;
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + at + 1, last, rank);
  if (error != std::errc{} || end != last || rank >= ranks) return {name};
  return {name.substr(0, at), rank, true};
}

}  // namespace ckpt
