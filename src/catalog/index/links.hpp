#pragma once

#include <string>
#include <vector>

#include "catalog/index/database.hpp"
#include "catalog/index/entry.hpp"
#include "engine/io.hpp"
#include "format/result.hpp"

namespace ckpt::catalog {

/// Marks checkpoints that symbolic links in the store lead to, or into. A link beside checkpoints (`latest ->
/// step-...`) names its target, as a tracker does; a link among another tool's data files makes that checkpoint refer
/// to the target. Resolved on disk, in places where the index says that links may be.
/// errors  of the index
Result<> note_links(Io& io, const std::string& store, Database& database, std::vector<Entry>& entries);

}  // namespace ckpt::catalog
