#pragma once

#include <cstdint>
#include <span>

#include "format/result.hpp"

namespace ckpt {

/// Arithmetic on numbers that come from files: a result that does not fit in 64 bits is `corrupt`.
[[nodiscard]] inline Result<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) return fail(Errc::corrupt, "a size overflows 64 bits");
  return out;
}
[[nodiscard]] inline Result<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) return fail(Errc::corrupt, "a size overflows 64 bits");
  return out;
}

/// The number of elements of a shape; 1 for a 0-d tensor. Zero dimensions do not hide an overflow of the others.
[[nodiscard]] inline Result<std::uint64_t> checked_volume(std::span<const std::uint64_t> shape) {
  std::uint64_t nonzero = 1;
  bool empty = false;
  for (const std::uint64_t size : shape) {
    if (size == 0) {
      empty = true;
      continue;
    }
    CKPT_TRY(nonzero, checked_mul(nonzero, size));
  }
  return empty ? 0 : nonzero;
}

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t multiple) {
  return value / multiple * multiple;
}

}  // namespace ckpt
