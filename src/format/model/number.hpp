#pragma once

#include <complex>
#include <cstddef>
#include <span>

#include "format/model/dtype.hpp"

namespace ckpt {

/// Element `index` of densely stored little-endian elements, aligned or not; the imaginary part of real ones is 0. 64-bit
/// integers are rounded to 53 bits. Not of packed types.
std::complex<double> number_at(Dtype dtype, std::span<const std::byte> values, std::size_t index);

}  // namespace ckpt
