#pragma once

#include <string>
#include <vector>

#include "convert/safetensors/shard.hpp"
#include "engine/io/io.hpp"
#include "format/hash.hpp"

namespace ckpt::safetensors {

/// Tensors without dimensions that torch lost when it joined slices: it leaves them zero (torch 2.9 to 2.13,
/// _consolidate_hf_safetensors.py, _write_sub_tensor_to_file_optimized returns early). Returned are the files of slices
/// that hold them, each with no entries but those; in the order of their names.
///
/// full     the full files; only their scalars with all bytes zero are replaced
/// errors   as ShardReader, as the Io
Result<std::vector<Shard>> lost_scalars(Io& io, const std::string& root, const std::vector<Shard>& full,
                                        ShardReader& reader, Hasher& metadata);

}  // namespace ckpt::safetensors
