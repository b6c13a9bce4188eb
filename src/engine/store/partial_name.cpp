#include "engine/store/partial_name.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ckpt {

std::string partial_path(std::string_view target, std::string_view id) {
  return fmt::format("{}{}{}", target, kPartialMark, id);
}

std::optional<PartialName> parse_partial_name(std::string_view name) {
  const std::size_t mark = name.rfind(kPartialMark);
  if (mark == std::string_view::npos || mark == 0) return std::nullopt;
  const PartialName out{.target = name.substr(0, mark), .id = name.substr(mark + kPartialMark.size())};
  if (out.id.size() != kPartialIdDigits || out.id.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return std::nullopt;
  return out;
}

bool is_in_partial(std::string_view path) {
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (parse_partial_name(path.substr(begin, end - begin))) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace ckpt
