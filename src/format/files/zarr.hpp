#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/box.hpp"
#include "format/model/dtype.hpp"
#include "format/result.hpp"

/// Zarr arrays, version 2: a folder with `.zarray` and one file a chunk.
namespace ckpt::zarr {

inline constexpr std::string_view kArrayFile = ".zarray";
inline constexpr std::uint64_t kMostArrayFileBytes = std::uint64_t{1} << 20;

/// What `.zarray` says of an array whose chunks are stored as they are.
struct Array {
  Dtype dtype = Dtype::f32;
  bool big_endian = false;
  bool is_complex128 = false;  ///< pairs of `dtype` F64: the shape lacks the dimension of 2
  Shape shape{};
  Shape chunk{};  ///< of every chunk, also of those that the array's end cuts; no dimension is 0
  bool is_column_major = false;
  char separator = '.';           ///< between the numbers in a chunk's name
  std::uint64_t chunk_bytes = 0;  ///< of one chunk's file
};

/// errors  corrupt: not such a document, or its numbers contradict each other; unsupported: compressed or filtered chunks,
///         an element type that no tensor has
/// source  zarr-specs.readthedocs.io: version 2; tensorstore's names of types that NumPy lacks ("bfloat16")
Result<Array> parse_array(std::string_view text);

/// The name of a chunk's file, below the array's folder: "1.0", of an array without dimensions "0".
std::string chunk_name(const Array& array, std::span<const std::uint64_t> chunk);

}  // namespace ckpt::zarr
