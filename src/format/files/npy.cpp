#include "format/files/npy.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "format/checked.hpp"
#include "format/model/model.hpp"

namespace ckpt::npy {
namespace {

constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);
constexpr std::size_t kLengthBytes = 2;
constexpr std::size_t kMostDims = 32;

}  // namespace

Type type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::boolean:
      return {"|b1", "bool"};
    case Dtype::u8:
      return {"|u1", "uint8"};
    case Dtype::i8:
      return {"|i1", "int8"};
    case Dtype::i16:
      return {"<i2", "int16"};
    case Dtype::u16:
      return {"<u2", "uint16"};
    case Dtype::f16:
      return {"<f2", "float16"};
    case Dtype::i32:
      return {"<i4", "int32"};
    case Dtype::u32:
      return {"<u4", "uint32"};
    case Dtype::f32:
      return {"<f4", "float32"};
    case Dtype::c64:
      return {"<c8", "complex64"};
    case Dtype::f64:
      return {"<f8", "float64"};
    case Dtype::i64:
      return {"<i8", "int64"};
    case Dtype::u64:
      return {"<u8", "uint64"};
    case Dtype::bf16:
      return {"<u2", "uint16", true};
    case Dtype::f4:
    case Dtype::f6_e2m3:
    case Dtype::f6_e3m2:
    case Dtype::f8_e5m2:
    case Dtype::f8_e4m3:
    case Dtype::f8_e8m0:
    case Dtype::f8_e4m3fnuz:
    case Dtype::f8_e5m2fnuz:
      return {"|u1", "uint8", true};
  }
  return {"|u1", "uint8", true};
}

Result<Shape> array_shape(Dtype dtype, const Shape& shape) {
  if (!is_packed(dtype)) return shape;
  CKPT_TRY(const std::uint64_t bytes, tensor_bytes(dtype, shape));
  Shape out = shape;
  CKPT_TRY(const std::uint64_t bits, checked_mul(shape.empty() ? 1 : shape.back(), dtype_bits(dtype)));
  if (shape.empty() || bits % 8 != 0) return Shape{bytes};
  out.back() = bits / 8;
  return out;
}

namespace {

/// Whether all dimensions but the zeros have fewer than 2^63 bytes together.
/// source  numpy/_core/src/multiarray/ctors.c, PyArray_NewFromDescr_int: "array is too big", also for one without elements
bool fits_numpy(Dtype dtype, const Shape& dims) {
  std::uint64_t bytes = is_packed(dtype) ? 1 : dtype_bits(dtype) / 8;
  for (const std::uint64_t dim : dims) {
    if (dim != 0 && __builtin_mul_overflow(bytes, dim, &bytes)) return false;
  }
  return bytes <= INT64_MAX;
}

}  // namespace

Result<std::string> build_header(Dtype dtype, const Shape& shape, std::size_t alignment) {
  if (shape.size() > kMostDims) {
    return fail(Errc::unsupported,
                fmt::format("NumPy supports at most {} dimensions, not {}", kMostDims, shape.size()));
  }
  CKPT_TRY(const Shape dims, array_shape(dtype, shape));
  if (!fits_numpy(dtype, dims)) return fail(Errc::unsupported, "NumPy holds no dimension or stride of 2^63 or more");
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (", type_of(dtype).descr);
  for (std::size_t i = 0; i < dims.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", dims[i]);
  text += dims.size() == 1 ? ",), }" : "), }";
  const std::size_t begin = kMagic.size() + kLengthBytes;
  const auto total = static_cast<std::size_t>(round_up(begin + text.size() + 1, alignment));
  text.append(total - begin - text.size() - 1, ' ');
  text += '\n';
  std::string out(kMagic);
  out += static_cast<char>(text.size() & 0xff);
  out += static_cast<char>(text.size() >> 8);
  return out + text;
}

}  // namespace ckpt::npy
