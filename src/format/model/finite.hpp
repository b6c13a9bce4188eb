#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/model/dtype.hpp"

namespace ckpt {

/// NaNs and infinite values.
struct NotFinite {
  std::uint64_t nan = 0;
  std::uint64_t infinite = 0;
  NotFinite& operator+=(const NotFinite& other) {
    nan += other.nan;
    infinite += other.infinite;
    return *this;
  }
  bool any() const { return nan != 0 || infinite != 0; }
};

/// True for types that have a NaN: the floating ones, complex numbers (two floats an element) and those of eight bits.
bool has_nan(Dtype dtype);

/// Counts densely stored little-endian elements, aligned or not; zeroes for types without a NaN. Of a complex number
/// each half counts.
NotFinite count_not_finite(Dtype dtype, std::span<const std::byte> values);

}  // namespace ckpt
