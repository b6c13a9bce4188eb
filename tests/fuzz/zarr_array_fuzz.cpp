#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "format/files/zarr.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

// An accepted array has chunks of its own number of dimensions, none of which is empty, and names for them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto array = ckpt::zarr::parse_array({reinterpret_cast<const char*>(data), size});
  if (!array) return 0;
  require(array->shape.size() == array->chunk.size());
  std::uint64_t bytes = array->is_complex128 ? 2 : 1;
  for (const std::uint64_t one : array->chunk) {
    require(one != 0);
    bytes *= one;
  }
  require(array->chunk_bytes % bytes == 0);
  require(!ckpt::zarr::chunk_name(*array, array->chunk).empty());
  return 0;
}
