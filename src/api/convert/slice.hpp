#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/write_request.hpp"

namespace ckpt {

/// A slice as NumPy writes it, "name[0:128, :, -1]": one entry per dimension, outermost first; missing dimensions are
/// whole, and "..." replaces those between. Ranges are clipped to the tensor, negative numbers count from the end, a
/// single index removes its dimension. No steps.
struct Slice {
  struct Entry {
    enum class Kind : std::uint8_t { range, index, rest } kind = Kind::range;
    std::optional<std::int64_t> begin{};  ///< the index itself for Kind::index
    std::optional<std::int64_t> end{};
  };
  std::string name;  ///< everything before the last '[': names may contain brackets
  std::string text;  ///< from that on, as given: "[0:128,:]"
  std::vector<Entry> entries{};
};

/// errors   usage: not a slice, a step, two "...", a number that does not fit in 64 bits
Result<Slice> parse_slice(std::string_view text);

/// The box that the slice takes of a tensor.
/// errors   usage: more entries than dimensions, an index outside, a cut inside a packed dtype (F4, F6)
Result<TensorPart> apply_slice(const Slice& slice, const Tensor& tensor);

}  // namespace ckpt
