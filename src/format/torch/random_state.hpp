#pragma once

#include <cstddef>
#include <string_view>

namespace ckpt::torch {

/// Whether a tensor holds the state of a random number generator, of which each rank has its own.
///
/// name        dotted path in the state
/// dimensions  of the tensor
inline bool is_random_state(std::string_view name, std::string_view dtype_name, std::size_t dimensions) {
  return dtype_name == "uint8" && dimensions == 1 &&
         (name.find("rng") != std::string_view::npos || name.find("random") != std::string_view::npos);
}

}  // namespace ckpt::torch
