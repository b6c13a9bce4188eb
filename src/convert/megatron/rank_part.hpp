#pragma once

#include <cstddef>
#include <cstdint>

#include "convert/megatron/weight_rules.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt::megatron {

/// What the file of one rank holds of a weight.
struct Part {
  std::size_t rank = 0;     ///< index into Ranks::files
  std::size_t tensor = 0;   ///< in the map of its file
  std::uint64_t chunk = 0;  ///< of the stage, with the interleaved schedule
  Weight weight{};
  Dtype dtype = Dtype::f32;
  Shape shape{};    ///< of the part
  Locator where{};  ///< its file counts in the joined map
};

/// Where a tensor of one file is, with its file's index in a map that has it at `first_file`.
/// errors  unsupported: it is stored in several pieces
Result<Locator> locate(const Map& map, std::size_t tensor, std::uint32_t first_file);

}  // namespace ckpt::megatron
