#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ckpt {

/// The element types of safetensors, in the order of its reference implementation (the sort key of its writer).
enum class Dtype : std::uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};
constexpr int kDtypeCount = 22;

/// Bits of one element: 4 and 6 for the packed types, else a multiple of 8.
unsigned dtype_bits(Dtype dtype);

/// True for F4 and F6: several elements share bytes, so a cut is only possible between whole tensors.
constexpr bool is_packed(Dtype dtype) {
  return dtype == Dtype::f4 || dtype == Dtype::f6_e2m3 || dtype == Dtype::f6_e3m2;
}

/// Bytes of the smallest unit that is moved: the element, or one byte for packed types.
inline unsigned unit_bytes(Dtype dtype) {
  return is_packed(dtype) ? 1 : dtype_bits(dtype) / 8;
}

/// F64, F32, F16, BF16: what `--dtype` may cast from and to (to: all but F64).
constexpr bool is_castable(Dtype dtype) {
  return dtype == Dtype::f64 || dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

/// The name in a safetensors header: "F32", "BF16", "F8_E4M3", ...
std::string_view dtype_name(Dtype dtype);
std::optional<Dtype> dtype_from_name(std::string_view name);

/// A torch dtype's attribute name ("float32", "float8_e4m3fn"); complex128, complex32, quantised and bits types
/// have no element type here and give nothing.
std::optional<Dtype> dtype_from_torch(std::string_view name);

}  // namespace ckpt
