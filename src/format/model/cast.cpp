#include "format/model/cast.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace ckpt {
namespace {

// One block at a time: widened to double or float in a buffer that stays in the first-level cache.
constexpr std::size_t kBlock = 1024;

float widen_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 31u;
  const std::uint32_t fraction = half & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

std::uint16_t narrow_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds past 65504
  if (magnitude >= 0x38800000u) {
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
  // Subnormal halves: adding 0.5 makes the hardware round at the right bit (2^-24).
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
}

std::uint16_t narrow_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t quiet = bits | 0x400000u;
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>(((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >> 16);
}

/// Rounds a double to a float so that a later rounding to 16 bits equals one direct rounding: to odd.
float to_float_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (std::isnan(value) || std::isinf(value) || static_cast<double>(nearest) == value) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  const bool away = std::fabs(static_cast<double>(nearest)) > std::fabs(value);
  if (away) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1u);
}

template <class T>
T load(const std::byte* at) {
  T out;
  std::memcpy(&out, at, sizeof(T));
  return out;
}

void widen(Dtype from, const std::byte* source, float* out, std::size_t count) {
  switch (from) {
    case Dtype::f32:
      std::memcpy(out, source, 4 * count);
      return;
    case Dtype::bf16:
      for (std::size_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(source + 2 * i)) << 16);
      }
      return;
    default:
      for (std::size_t i = 0; i < count; ++i) out[i] = widen_half(load<std::uint16_t>(source + 2 * i));
  }
}

template <class Narrow>
void narrow(const float* in, std::byte* target, std::size_t count, Narrow to16, std::uint16_t infinity,
            CastCounts& counts) {
  std::uint32_t overflowed = 0;  // of at most kBlock values
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t out = to16(in[i]);
    const bool finite = (std::bit_cast<std::uint32_t>(in[i]) & 0x7fffffffu) < 0x7f800000u;
    overflowed += static_cast<std::uint32_t>((out & 0x7fffu) == infinity) & static_cast<std::uint32_t>(finite);
    std::memcpy(target + 2 * i, &out, 2);
  }
  counts.overflowed += overflowed;
}

void cast_block(Dtype from, const std::byte* source, Dtype to, std::byte* target, std::size_t count,
                CastCounts& counts) {
  float block[kBlock];
  if (from == Dtype::f64) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = load<double>(source + 8 * i);
      block[i] = to == Dtype::f32 ? static_cast<float>(value) : to_float_odd(value);
      if (to == Dtype::f32 && std::isinf(block[i]) && std::isfinite(value)) ++counts.overflowed;
    }
  } else {
    widen(from, source, block, count);
  }
  switch (to) {
    case Dtype::bf16:
      return narrow(block, target, count, narrow_bfloat, 0x7f80, counts);
    case Dtype::f16:
      return narrow(block, target, count, narrow_half, 0x7c00, counts);
    case Dtype::f64:
      for (std::size_t i = 0; i < count; ++i) {
        const double value = block[i];
        std::memcpy(target + 8 * i, &value, 8);
      }
      return;
    default:
      std::memcpy(target, block, 4 * count);
  }
}

template <class T, class Swap>
void swap_units(std::byte* data, std::size_t count, Swap swap) {
  for (std::size_t i = 0; i < count; ++i) {
    const T value = swap(load<T>(data + sizeof(T) * i));
    std::memcpy(data + sizeof(T) * i, &value, sizeof(T));
  }
}

}  // namespace

void cast(Dtype from, const std::byte* source, Dtype to, std::byte* target, std::size_t count, CastCounts& counts) {
  const std::size_t from_bytes = unit_bytes(from);
  const std::size_t to_bytes = unit_bytes(to);
  if (from == to) {
    std::memcpy(target, source, count * from_bytes);
    return;
  }
  for (std::size_t at = 0; at < count; at += kBlock) {
    cast_block(from, source + at * from_bytes, to, target + at * to_bytes, std::min(kBlock, count - at), counts);
  }
}

void swap_bytes(std::byte* data, std::size_t count, unsigned unit_bytes) {
  switch (unit_bytes) {
    case 2:
      return swap_units<std::uint16_t>(data, count, [](std::uint16_t v) { return __builtin_bswap16(v); });
    case 4:
      return swap_units<std::uint32_t>(data, count, [](std::uint32_t v) { return __builtin_bswap32(v); });
    case 8:
      return swap_units<std::uint64_t>(data, count, [](std::uint64_t v) { return __builtin_bswap64(v); });
    default:
      return;
  }
}

}  // namespace ckpt
