#pragma once

#include <cstdint>
#include <string>

#include "engine/io/io.hpp"
#include "format/torch/pickle.hpp"

namespace ckpt {

/// Memory of a parser for each byte of a file, including the byte itself: measured on the worst text that it accepts,
/// so that a file can be refused before it is read.
enum class MetadataCost : std::uint64_t {
  dcp_metadata = 4,  ///< of torch's own pickles; the pickle budget limits hostile ones
  sums = 4,
  hdf5_answer = 16,         ///< of the helper: datasets, their names, and the map made of them
  safetensors_header = 12,  ///< entries, and the tensors made of them
  index_file = 19,
  python_tree = 56,  ///< of the Python package: worst for short numbers
  json = 24,         ///< manifest.json, objects.json and indexes: worst for short numbers or empty texts
};

/// The memory that a file of this size may need; the largest number on overflow.
std::uint64_t memory_for(std::uint64_t file_bytes, MetadataCost cost);

/// `memory`: reading this file may take more than `limit`. Names the smallest sufficient --memory.
Error over_metadata_limit(const std::string& path, std::uint64_t file_bytes, std::uint64_t needed, std::uint64_t limit);

/// The budget of a pickle whose graph may take `limit` bytes. Overrun it is `memory`, not `refused`, where more memory
/// would help.
pickle::Budget pickle_budget(std::uint64_t limit);

/// A whole metadata file, unless parsing it may take more than `limit` bytes.
/// errors   memory: as over_metadata_limit; corrupt: over `most` bytes; those of Io
Result<std::string> read_metadata_file(Io& io, const std::string& path, MetadataCost cost, std::uint64_t limit,
                                       std::uint64_t most = UINT64_MAX);

}  // namespace ckpt
