#pragma once

#include "api/verbs.hpp"
#include "convert/open_source.hpp"

namespace ckpt {

/// verify --against: compares two checkpoints by name and adds what differs to `report`. Tied names count as names of
/// the tensor that they share; blobs are compared byte by byte, plain values by kind and content. Values that differ
/// and files beside the weights that only one side has are notes; so are ties that only one side has, if all values
/// are the same. Not collective: this process does it alone.
/// errors  unsupported: neither has a tensor; those of reading
Result<> compare_checkpoints(Session& session, const Source& here, const Source& there, VerifyReport& report);

}  // namespace ckpt
