#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "format/model/box.hpp"
#include "format/model/dtype.hpp"
#include "format/result.hpp"

namespace ckpt::npy {

/// NumPy's name of an element type: little-endian, in the form of the array interface ("<f4").
struct Type {
  std::string_view descr;  ///< of the header
  std::string_view name;   ///< numpy.dtype: "uint16"
  bool is_bits = false;    ///< NumPy has no such type: the elements' bits are stored as unsigned integers
};
/// BF16 becomes uint16; F8 of every kind, F6 and F4 (whose elements share bytes) become uint8.
Type type_of(Dtype dtype);

/// The shape that the array has: the tensor's, but bytes in the last dimension where elements share them (flat where
/// even that does not fit).
Result<Shape> array_shape(Dtype dtype, const Shape& shape);

/// The start of a .npy file, version 1.0, up to the array's bytes; its length is a multiple of `alignment`, itself a
/// multiple of 64 and at most 4096.
/// errors   unsupported: more dimensions than NumPy takes (32 before 2.0)
/// source   numpy/lib/format.py (2.1): the magic, u16 length, a Python dictionary, blanks, a line break; readers refuse
///          headers above 10000 bytes
Result<std::string> build_header(Dtype dtype, const Shape& shape, std::size_t alignment);

}  // namespace ckpt::npy
