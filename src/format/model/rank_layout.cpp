#include "format/model/rank_layout.hpp"

#include "format/text/parse_number.hpp"

namespace ckpt {

std::string ranked_name(std::string_view name, std::uint64_t rank) {
  return std::string(name) + "@" + std::to_string(rank);
}

RankedName split_ranked_name(std::string_view name, std::size_t ranks) {
  const std::size_t at = name.rfind('@');
  if (at == std::string_view::npos) return {name};
  const auto rank = parse_number<std::uint64_t>(name.substr(at + 1));
  if (!rank || *rank >= ranks) return {name};
  return {name.substr(0, at), *rank, true};
}

}  // namespace ckpt
