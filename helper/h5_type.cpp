#include "helper/h5_type.hpp"

#include <cstddef>
#include <cstring>

namespace {

bool is_big_endian(hid_t type) {
  return H5Tget_size(type) > 1 && H5Tget_order(type) == H5T_ORDER_BE;
}

Type integer_type(hid_t type) {
  const std::size_t size = H5Tget_size(type);
  const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
  Type out{.big_endian = is_big_endian(type), .text = std::to_string(8 * size) + "-bit integer"};
  if (H5Tget_precision(type) != 8 * size || H5Tget_offset(type) != 0) return out;
  if (size == 1) out.code = is_signed ? 5 : 4;
  if (size == 2) out.code = is_signed ? 11 : 12;
  if (size == 4) out.code = is_signed ? 15 : 16;
  if (size == 8) out.code = is_signed ? 20 : 21;
  return out;
}

Type float_type(hid_t type) {
  const std::size_t size = H5Tget_size(type);
  Type out{.big_endian = is_big_endian(type), .text = std::to_string(8 * size) + "-bit float"};
  std::size_t sign = 0;
  std::size_t exponent_at = 0;
  std::size_t exponent = 0;
  std::size_t mantissa_at = 0;
  std::size_t mantissa = 0;
  const H5T_order_t order = H5Tget_order(type);
  const bool plain = (order == H5T_ORDER_LE || order == H5T_ORDER_BE) && H5Tget_precision(type) == 8 * size &&
                     H5Tget_offset(type) == 0 && H5Tget_norm(type) == H5T_NORM_IMPLIED &&
                     H5Tget_fields(type, &sign, &exponent_at, &exponent, &mantissa_at, &mantissa) >= 0;
  if (!plain || mantissa_at != 0 || exponent_at != mantissa || sign != mantissa + exponent) return out;
  const std::size_t bias = H5Tget_ebias(type);
  if (size == 2 && exponent == 5 && bias == 15) out.code = 13;
  if (size == 2 && exponent == 8 && bias == 127) out.code = 14;
  if (size == 4 && exponent == 8 && bias == 127) out.code = 17;
  if (size == 8 && exponent == 11 && bias == 1023) out.code = 19;
  return out;
}

/// h5py's enumeration FALSE = 0, TRUE = 1 over 8 bits.
bool is_boolean(hid_t type) {
  signed char no = 1;
  signed char yes = 0;
  return H5Tget_size(type) == 1 && H5Tget_nmembers(type) == 2 && H5Tenum_valueof(type, "FALSE", &no) >= 0 &&
         H5Tenum_valueof(type, "TRUE", &yes) >= 0 && no == 0 && yes == 1;
}

/// h5py's compound of r and i.
Type complex_type(hid_t type) {
  Type out{.text = "compound"};
  if (H5Tget_nmembers(type) != 2) return out;
  char* names[2] = {H5Tget_member_name(type, 0), H5Tget_member_name(type, 1)};
  const bool named =
      names[0] != nullptr && names[1] != nullptr && std::strcmp(names[0], "r") == 0 && std::strcmp(names[1], "i") == 0;
  for (char* name : names) H5free_memory(name);
  if (!named || H5Tget_member_class(type, 0) != H5T_FLOAT || H5Tget_member_class(type, 1) != H5T_FLOAT) return out;
  const hid_t member = H5Tget_member_type(type, 0);
  const hid_t other = H5Tget_member_type(type, 1);
  const Type part = float_type(member);
  const bool dense = H5Tequal(member, other) > 0 && H5Tget_member_offset(type, 0) == 0 &&
                     H5Tget_member_offset(type, 1) == H5Tget_size(member) &&
                     H5Tget_size(type) == 2 * H5Tget_size(member);
  H5Tclose(member);
  H5Tclose(other);
  if (!dense) return out;
  out.big_endian = part.big_endian;
  if (part.code == 17) out.code = 18;
  if (part.code == 19) out.code = kComplex128;
  return out;
}

}  // namespace

Type type_of(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return integer_type(type);
    case H5T_FLOAT:
      return float_type(type);
    case H5T_ENUM:
      return is_boolean(type) ? Type{.code = 0} : Type{.text = "enumeration"};
    case H5T_COMPOUND:
      return complex_type(type);
    case H5T_STRING:
      return {.text = "text"};
    case H5T_VLEN:
      return {.text = "variable-length lists"};
    case H5T_REFERENCE:
      return {.text = "references"};
    default:
      return {.text = "an unsupported type"};
  }
}

hid_t little_endian(hid_t type) {
  if (H5Tget_class(type) != H5T_COMPOUND) {
    const hid_t out = H5Tcopy(type);
    if (H5Tget_size(out) > 1 && H5Tget_class(out) != H5T_ENUM) H5Tset_order(out, H5T_ORDER_LE);
    return out;
  }
  const hid_t member = H5Tget_member_type(type, 0);
  const hid_t part = little_endian(member);
  const hid_t out = H5Tcreate(H5T_COMPOUND, 2 * H5Tget_size(part));
  H5Tinsert(out, "r", 0, part);
  H5Tinsert(out, "i", H5Tget_size(part), part);
  H5Tclose(member);
  H5Tclose(part);
  return out;
}
