#pragma once

#include "api/verbs.hpp"
#include "convert/open_source.hpp"

namespace ckpt {

/// verify --against: compares two checkpoints by name and adds what differs to `report`. Tied names count as names of
/// the tensor that they share; ties that only one side has are notes, if all values are the same. So are plain values
/// and blobs that differ, as formats store them differently; blobs that hold parts of tensors count as tensors. What is
/// within the tolerance is no difference, whatever its type. With `request.only` nothing else is compared. Not
/// collective: this process does it alone.
/// errors  unsupported: neither has a tensor; not_found: none that `request.only` names; those of reading
Result<> compare_checkpoints(Session& session, const Source& here, const Source& there, const VerifyRequest& request,
                             VerifyReport& report);

}  // namespace ckpt
