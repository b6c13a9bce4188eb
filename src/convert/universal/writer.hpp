#pragma once

#include "convert/write_request.hpp"

namespace ckpt::universal {

/// Lays out a universal checkpoint: whole tensors, classes in separate files, objects.json. FORMAT.md sections 4, 6 and
/// 7. The bytes depend only on source, request and id.
///
/// errors  usage: two tensors of one name; unsupported: a tensor named "__metadata__"; corrupt: sizes that overflow;
///         refused: objects that nest too deep or are too many
Result<Skeleton> lay_out(const WriteRequest& request);

}  // namespace ckpt::universal
