#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert/universal/writer_files.hpp"
#include "engine/io/io.hpp"
#include "format/model/model.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/seal.hpp"
#include "format/universal/sums.hpp"
#include "format/universal/whole_layout.hpp"
#include "format/universal/writer_layout.hpp"

namespace ckpt::universal {

/// A checkpoint whose manifest and sums.bin were read and checked, and whose files were checked by size. Rows, records
/// and aliases of a dropped class are removed.
struct Checkpoint {
  Manifest manifest{};
  std::string manifest_text{};
  Sums sums{};
  std::vector<TensorPlace> places{};     ///< of Manifest::tensors, if all are in layout whole or virtual; else empty
  std::optional<WriterFiles> writers{};  ///< where some are not
  std::vector<MapFile> files{};          ///< of Sums::files in order, then manifest.json and sums.bin
  std::vector<std::string> missing{};    ///< paths of records whose file is missing
  std::vector<std::size_t> missing_records{};  ///< their numbers, ascending

  /// A file that exists but is not used.
  void count_as_missing(std::size_t record);
  bool is_missing(std::size_t record) const {
    return std::binary_search(missing_records.begin(), missing_records.end(), record);
  }
};

/// Steps 1 to 5 of FORMAT.md section 10; no shard is opened.
/// errors  uncommitted; not_found; newer; checksum or corrupt with the file; incomplete: sums.bin is missing. Missing
///         data files are listed in `missing`; with `salvage` so are those of a wrong size
Result<Checkpoint> open_checkpoint(Io& io, const std::string& root, std::uint64_t metadata_limit, bool salvage = false);

/// The bytes of a file that is not the engine's to read, every leaf compared.
/// errors  checksum with file and offset; memory: over `limit` bytes; those of Io
Result<std::string> read_hashed_file(Io& io, const std::string& root, const Sums& sums, const FileRecord& file,
                                     std::uint64_t limit);

}  // namespace ckpt::universal
