#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "convert/dcp/item.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/torch/dcp_metadata.hpp"

namespace ckpt::dcp {

/// Python objects in the bytes items that consist of None, bools, numbers, text, bytes,
/// lists and dicts only. Objects that hold tensors are named in a finding. Items over 1 MiB
/// and objects of other classes stay in their blobs; so do items beyond 4 MiB of pickles in
/// total, with a finding. Names and paths are those of name_of, in the order of the
/// entries.
///
/// codec     if items are compressed: `decoded_bytes` then gets, one per item, the decoded size of the bytes items;
///           each at most 256 MiB
/// hasher    gets every pickle that was read, in the order of the files
/// errors    corrupt, refused: a damaged or hostile torch.save stream, with file and offset; errors of Io
Result<> read_objects(const Metadata& metadata, RangeReader& reader, std::optional<Codec> codec,
                      std::vector<std::uint64_t>& decoded_bytes, Hasher& hasher, std::vector<NamedObject>& objects,
                      std::vector<Finding>& findings);

}  // namespace ckpt::dcp
