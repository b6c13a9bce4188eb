#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/dcp/directory.hpp"
#include "convert/dcp/ranges.hpp"
#include "engine/io/io.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/torch/dcp_metadata.hpp"

namespace ckpt::dcp {

/// `.metadata`, or, if a directory has none, `__R.metadata` of all ranks joined (MetadataMerge).
///
/// limit   bytes of these files in total
/// hasher  gets all of them, in the order of the ranks
/// errors  incomplete: a rank's is missing, although it or a later rank left files; corrupt, refused, unsupported as
///         parse_metadata and MetadataMerge, naming the file; errors of Io
Result<Metadata> read_metadata(Io& io, const std::string& root, const Directory& seen, std::uint64_t limit,
                               Hasher& hasher);

/// Of bytes that several ranks saved under one key, drops copies equal to the first rank's: only differing ones (random
/// states, positions in the data), and those of more than 4 MiB, keep an entry. At most 64 MiB are compared in total;
/// copies beyond that are dropped if they are as long as the first, with a warning.
/// errors  of the reads
Result<> drop_equal_copies(Metadata& metadata, RangeReader& reader, std::vector<Finding>& findings);

}  // namespace ckpt::dcp
