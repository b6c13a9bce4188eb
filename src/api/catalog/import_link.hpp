#pragma once

#include "api/convert/conversion_hooks.hpp"
#include "api/verbs.hpp"
#include "format/result.hpp"

namespace ckpt {

/// In place of the conversion of an import: a checkpoint of the universal form gets a second name, file by file. It
/// keeps its id, which stands in each of its files, and so its hashes; manifest and sums.bin are rewritten.
/// `verify`: of the source, none: structure and sizes, as read; full: every hash. Of the request's parameters none that
/// changes bytes. Collective; rank 0 does it, and its report alone is filled in.
///
/// errors  usage: what cannot be linked (another form, another file system, the optimizer dropped), with the reason;
///         corrupt, incomplete: the source; those of the hooks and of Publication
Result<ConvertReport> link_checkpoint(Session& session, const ConvertRequest& request,
                                      const ConversionHooks::InRun& in_run);

}  // namespace ckpt
