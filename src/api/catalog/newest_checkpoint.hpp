#pragma once

#include <string>

#include "api/catalog/named_checkpoint.hpp"

namespace ckpt {

/// The checkpoint at a path: the path itself, or the newest checkpoint in a directory that is not one (find_source).
/// Any other path, also one that does not exist, is returned as it is: opening it gives the reason.
/// errors  not_found: a store or run without a checkpoint; ambiguous: a store of several runs; those
///         of the catalog
Result<FoundSource> newest_at(Io& io, const std::string& path, catalog::Time now);

}  // namespace ckpt
