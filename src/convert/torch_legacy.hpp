#pragma once

#include <string_view>

#include "convert/torch_archive.hpp"
#include "convert/torch_stream.hpp"

namespace ckpt {

/// The first bytes of a file by torch.save before torch 1.6, or with _use_new_zipfile_serialization=False.
bool is_legacy_torch(std::string_view head);

/// Opens such a stream: five pickles (magic, protocol, system, the object, the storages' keys), then each storage as an
/// element count and its bytes. Reads the pickles and the counts. There are no checksums, and the bytes are
/// little-endian on every system (torch/csrc/serialization.cpp).
///
/// errors   corrupt: a pickle is broken, a storage is missing, too long or there twice; unsupported: a protocol other
///          than 1001, views of storages; refused as pickle.hpp
Result<TorchArchive> open_legacy_torch(StreamReader& stream, const pickle::Budget& budget);

}  // namespace ckpt
