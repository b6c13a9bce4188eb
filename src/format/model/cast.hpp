#pragma once

#include <cstddef>
#include <cstdint>

#include "format/model/dtype.hpp"

namespace ckpt {

/// Values that changed in a cast.
struct CastCounts {
  std::uint64_t overflowed = 0;  ///< finite before, infinite after
  std::uint64_t became_nan = 0;  ///< not NaN before, NaN after

  CastCounts& operator+=(const CastCounts& other) {
    overflowed += other.overflowed;
    became_nan += other.became_nan;
    return *this;
  }
};

/// Converts `count` densely stored little-endian floats (is_castable) from one type to another, rounding to nearest
/// even. Neither side needs to be aligned; they must not overlap. NaNs stay NaNs (quiet, payload cut).
void cast(Dtype from, const std::byte* source, Dtype to, std::byte* target, std::size_t count, CastCounts& counts);

/// Reverses the bytes of `count` units of `unit_bytes` (1, 2, 4 or 8) each, in place.
void swap_bytes(std::byte* data, std::size_t count, unsigned unit_bytes);

}  // namespace ckpt
