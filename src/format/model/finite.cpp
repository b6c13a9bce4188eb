#include "format/model/finite.hpp"

#include <cstring>

namespace ckpt {
namespace {

/// IEEE-like types: an exponent of ones means NaN or, with a zero fraction, infinity.
template <class Bits>
NotFinite count_ieee(std::span<const std::byte> values, Bits sign_off, Bits infinity) {
  NotFinite out;
  const std::size_t count = values.size() / sizeof(Bits);
  for (std::size_t i = 0; i < count; ++i) {
    Bits bits{};
    std::memcpy(&bits, values.data() + i * sizeof(Bits), sizeof(Bits));
    bits = static_cast<Bits>(bits & sign_off);
    out.nan += bits > infinity ? 1u : 0u;
    out.infinite += bits == infinity ? 1u : 0u;
  }
  return out;
}

/// Types of eight bits whose only special value is NaN.
NotFinite count_bytes(std::span<const std::byte> values, std::uint8_t mask, std::uint8_t nan) {
  NotFinite out;
  for (const std::byte value : values) out.nan += (std::to_integer<std::uint8_t>(value) & mask) == nan ? 1u : 0u;
  return out;
}

}  // namespace

bool has_nan(Dtype dtype) {
  switch (dtype) {
    case Dtype::f8_e5m2:
    case Dtype::f8_e4m3:
    case Dtype::f8_e8m0:
    case Dtype::f8_e4m3fnuz:
    case Dtype::f8_e5m2fnuz:
    case Dtype::f16:
    case Dtype::bf16:
    case Dtype::f32:
    case Dtype::c64:
    case Dtype::f64:
      return true;
    default:
      return false;
  }
}

NotFinite count_not_finite(Dtype dtype, std::span<const std::byte> values) {
  switch (dtype) {
    case Dtype::f64:
      return count_ieee<std::uint64_t>(values, 0x7fffffffffffffff, 0x7ff0000000000000);
    case Dtype::f32:
    case Dtype::c64:
      return count_ieee<std::uint32_t>(values, 0x7fffffff, 0x7f800000);
    case Dtype::f16:
      return count_ieee<std::uint16_t>(values, 0x7fff, 0x7c00);
    case Dtype::bf16:
      return count_ieee<std::uint16_t>(values, 0x7fff, 0x7f80);
    case Dtype::f8_e5m2:
      return count_ieee<std::uint8_t>(values, 0x7f, 0x7c);
    case Dtype::f8_e4m3:
      return count_bytes(values, 0x7f, 0x7f);
    case Dtype::f8_e8m0:
      return count_bytes(values, 0xff, 0xff);
    case Dtype::f8_e4m3fnuz:
    case Dtype::f8_e5m2fnuz:
      return count_bytes(values, 0xff, 0x80);
    default:
      return {};
  }
}

}  // namespace ckpt
