#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "convert/open_source.hpp"

namespace ckpt {

/// The values of the selected slots that are numbers: step counters (one element, called "step"), and others without
/// dimensions. Reads a few bytes of each. By index into Map::tensors.
///
/// errors  those of reading; unsupported: one is in compressed data
Result<std::unordered_map<std::uint32_t, double>> read_step_counters(const Source& source,
                                                                     std::span<const Selected> tensors);

}  // namespace ckpt
