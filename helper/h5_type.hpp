#pragma once

#include <hdf5.h>

#include <string>

constexpr int kComplex128 = 254;
constexpr int kNoType = 255;

/// The element type of a dataset.
struct Type {
  int code = kNoType;  ///< as in a skeleton's request, or one of the two above
  bool big_endian = false;
  std::string text{};  ///< description for people, if the type is unknown
};
Type type_of(hid_t type);

/// The same type, little-endian; the caller's to close.
hid_t little_endian(hid_t type);
