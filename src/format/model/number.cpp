#include "format/model/number.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "format/model/cast.hpp"

namespace ckpt {
namespace {

template <class Number>
double stored(std::span<const std::byte> values, std::size_t index) {
  Number value{};
  std::memcpy(&value, values.data() + index * sizeof(Number), sizeof(Number));
  return static_cast<double>(value);
}

double float_at(Dtype dtype, std::span<const std::byte> values, std::size_t index) {
  const std::size_t unit = unit_bytes(dtype);
  std::array<std::byte, 4> wide{};
  CastCounts ignored;
  cast(dtype, values.data() + index * unit, Dtype::f32, wide.data(), 1, ignored);
  return stored<float>(wide, 0);
}

/// A float of a byte without a sign of its own for NaN. source: OCP 8-bit Floating Point Specification; for FNUZ types,
/// whose only NaN is -0, LLVM APFloat
double eight_bits(std::byte stored, int mantissa_bits, int bias, bool only_nan_is_minus_zero) {
  const auto bits = static_cast<unsigned>(stored);
  const unsigned mantissa = bits & ((1U << mantissa_bits) - 1);
  const int exponent = static_cast<int>((bits & 0x7fU) >> mantissa_bits);
  if (only_nan_is_minus_zero ? bits == 0x80U : (bits & 0x7fU) == 0x7fU) return std::numeric_limits<double>::quiet_NaN();
  const double size = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                    : std::ldexp(mantissa + (1U << mantissa_bits), exponent - bias - mantissa_bits);
  return (bits & 0x80U) != 0 ? -size : size;
}

double scale_of(std::byte stored) {
  const auto bits = static_cast<int>(stored);
  return bits == 0xff ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, bits - 127);
}

}  // namespace

std::complex<double> number_at(Dtype dtype, std::span<const std::byte> values, std::size_t index) {
  switch (dtype) {
    case Dtype::f16:
    case Dtype::bf16:
      return float_at(dtype, values, index);
    case Dtype::f8_e5m2: {  // the upper half of an F16
      const std::array<std::byte, 2> wide{std::byte{0}, values[index]};
      return float_at(Dtype::f16, wide, 0);
    }
    case Dtype::f8_e4m3:
      return eight_bits(values[index], 3, 7, false);
    case Dtype::f8_e4m3fnuz:
      return eight_bits(values[index], 3, 8, true);
    case Dtype::f8_e5m2fnuz:
      return eight_bits(values[index], 2, 16, true);
    case Dtype::f8_e8m0:
      return scale_of(values[index]);
    case Dtype::c64:
      return {stored<float>(values, 2 * index), stored<float>(values, 2 * index + 1)};
    case Dtype::f32:
      return stored<float>(values, index);
    case Dtype::f64:
      return stored<double>(values, index);
    case Dtype::i8:
      return stored<std::int8_t>(values, index);
    case Dtype::u16:
      return stored<std::uint16_t>(values, index);
    case Dtype::i16:
      return stored<std::int16_t>(values, index);
    case Dtype::u32:
      return stored<std::uint32_t>(values, index);
    case Dtype::i32:
      return stored<std::int32_t>(values, index);
    case Dtype::u64:
      return static_cast<double>(stored<std::uint64_t>(values, index));
    case Dtype::i64:
      return static_cast<double>(stored<std::int64_t>(values, index));
    default:
      return stored<std::uint8_t>(values, index);
  }
}

}  // namespace ckpt
