#pragma once

#include <memory>
#include <span>
#include <string>

#include "convert/dcp/index.hpp"
#include "engine/io/io.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/torch/dcp_metadata.hpp"

namespace ckpt::dcp {

/// True if the tensors of a file were saved as one safetensors blob (SerializationFormat.SAFETENSORS): checks the file
/// of the first tensor.
/// errors  of Io
Result<bool> holds_safetensors(Io& io, const std::string& root, const Metadata& metadata,
                               std::span<const MapFile> files);

/// The chunks of a directory whose files each end in a safetensors blob. A storage record's offset is that of the blob;
/// a tensor is found by its key in the blob's header, which is read now, one file at a time.
///
/// types   one per entry
/// hasher  gets every header, in the order of the files
/// errors  corrupt, naming file and tensor: as parse_header; a tensor that is not in its blob, or has another dtype,
///         shape or saved_offsets than in `.metadata`; two blobs in one file; two chunks of a tensor in one file, of
///         which a blob keeps one; memory: headers over `limit` bytes in total; errors of Io
/// source  torch/distributed/checkpoint/filesystem.py _write_files_from_queue
Result<std::shared_ptr<const ChunkIndex>> index_safetensors(Io& io, const std::string& root, const Metadata& metadata,
                                                            std::span<const StoredType> types,
                                                            std::span<const MapFile> files, std::uint64_t limit,
                                                            Hasher& hasher);

}  // namespace ckpt::dcp
