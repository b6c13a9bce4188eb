#include "format/naming/side.hpp"

namespace ckpt::naming {

std::string_view side_word(Side side) {
  return side == Side::hf ? "hf" : "megatron";
}

std::optional<Side> find_side(std::string_view word) {
  for (const Side side : {Side::hf, Side::megatron}) {
    if (word == side_word(side)) return side;
  }
  return std::nullopt;
}

}  // namespace ckpt::naming
