#pragma once

#include <string>

#include "format/torch/dcp_metadata.hpp"

namespace ckpt::dcp {

/// Checks that no two items share bytes of a file: torch writes each separately, so a shared byte means that a record
/// points to another's place. (Not for files of one safetensors blob, whose records all point to its start.)
///
/// root     of the checkpoint, for messages
/// errors   corrupt, with file, offset and tensor
Result<> check_items_apart(const Metadata& metadata, const std::string& root);

}  // namespace ckpt::dcp
