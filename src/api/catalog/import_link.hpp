#pragma once

#include "api/convert/conversion.hpp"
#include "api/verbs.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Replaces the conversion of an import: a universal checkpoint gets a second name, file by file. It keeps its id,
/// which is in each of its files, and so its hashes; manifest and sums.bin are rewritten. `verify`: of the source,
/// none: structure and sizes, as read; full: every hash. Parameters that change bytes are refused. Collective; rank 0
/// does the work and fills in its report.
///
/// errors  usage: it cannot be linked (another format, another file system, the optimizer dropped), with the reason;
///         corrupt, incomplete: the source; those of the target and of Publication
Result<ConvertReport> link_checkpoint(Session& session, const ConvertRequest& request, RunTarget& target);

}  // namespace ckpt
