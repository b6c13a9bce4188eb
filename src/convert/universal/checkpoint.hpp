#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/io.hpp"
#include "format/manifest.hpp"
#include "format/model.hpp"
#include "format/seal.hpp"
#include "format/sums.hpp"
#include "format/whole_layout.hpp"
#include "format/writer_layout.hpp"

namespace ckpt::universal {

/// A checkpoint whose manifest and sums.bin were read and checked, and whose files were looked at.
struct Checkpoint {
  Manifest manifest{};
  std::string manifest_text{};
  Sums sums{};
  std::vector<TensorPlace> places{};   ///< of Manifest::tensors
  std::vector<MapFile> files{};        ///< of Sums::files in order, then manifest.json and sums.bin
  std::vector<std::string> missing{};  ///< paths of records whose file is not there
};

/// Steps 1 to 5 of FORMAT.md section 10; no shard is opened.
/// errors  uncommitted; not_found; newer; checksum or corrupt with the file; incomplete: sums.bin is missing. Missing
///         data files are no error but in `missing`
Result<Checkpoint> open_checkpoint(Io& io, const std::string& root, std::uint64_t metadata_limit);

}  // namespace ckpt::universal
