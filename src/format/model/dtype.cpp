#include "format/model/dtype.hpp"

#include <array>
#include <cstddef>

namespace ckpt {
namespace {

struct Row {
  std::string_view name;
  std::string_view torch;
  unsigned bits;
};

// In the order of Dtype. Names: safetensors/src/tensor.rs, enum Dtype. F4's torch type holds two elements a byte.
constexpr std::array<Row, kDtypeCount> kRows{{
    {"BOOL", "bool", 8},
    {"F4", "float4_e2m1fn_x2", 4},
    {"F6_E2M3", "", 6},
    {"F6_E3M2", "", 6},
    {"U8", "uint8", 8},
    {"I8", "int8", 8},
    {"F8_E5M2", "float8_e5m2", 8},
    {"F8_E4M3", "float8_e4m3fn", 8},
    {"F8_E8M0", "float8_e8m0fnu", 8},
    {"F8_E4M3FNUZ", "float8_e4m3fnuz", 8},
    {"F8_E5M2FNUZ", "float8_e5m2fnuz", 8},
    {"I16", "int16", 16},
    {"U16", "uint16", 16},
    {"F16", "float16", 16},
    {"BF16", "bfloat16", 16},
    {"I32", "int32", 32},
    {"U32", "uint32", 32},
    {"F32", "float32", 32},
    {"C64", "complex64", 64},
    {"F64", "float64", 64},
    {"I64", "int64", 64},
    {"U64", "uint64", 64},
}};

}  // namespace

unsigned dtype_bits(Dtype dtype) {
  return kRows[static_cast<std::size_t>(dtype)].bits;
}

std::string_view dtype_name(Dtype dtype) {
  return kRows[static_cast<std::size_t>(dtype)].name;
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

std::optional<Dtype> dtype_from_torch(std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].torch == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

}  // namespace ckpt
