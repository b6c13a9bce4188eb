#pragma once

#include "convert/read_options.hpp"
#include "engine/io/io.hpp"
#include "format/model/model.hpp"

namespace ckpt::hdf5 {

/// Reads an HDF5 file, or the one in a Keras archive, by the helper program ckpt-h5: in its own process, with limits on
/// time and memory, because HDF5 trusts what it parses. The engine reads contiguous datasets from the file; the helper
/// decodes others (chunks, filters, never written) into a temporary file when they are first needed.
/// errors  corrupt: HDF5 refuses the file, or the helper died; refused: links to other files, a decompression bomb, a
///         compressed entry of an archive; unsupported: no helper, another filter, a newer structure; ambiguous:
///         several such files in the directory; incomplete: an archive without weights; memory: more metadata than
///         `options` allow
Result<Map> open(Io& io, const std::string& root, const ReadOptions& options);

}  // namespace ckpt::hdf5
