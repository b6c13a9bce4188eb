#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/result.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/mesh_layout.hpp"
#include "loading/load_plan.hpp"

namespace ckpt {

/// The parts of a tensor that fill a rank's local array, as it was, or will be, added to a save with this layout.
///
/// tensor   index in the source map; its shape is that of `row.tensor`
/// out      the local array: owned by the caller, of *bytes
/// errors   corrupt: the layout does not fit the tensor
Result<std::vector<PartRead>> model_reads(const universal::Layout& layout, const universal::TensorRow& row,
                                          std::uint64_t rank, std::uint32_t tensor, std::byte* out,
                                          std::uint64_t& bytes);

}  // namespace ckpt
